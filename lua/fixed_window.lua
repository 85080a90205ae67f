-- Windows of one period, aligned to the epoch. State: one record, the window's start and count.
makers[FIXED_WINDOW] = function()
  local function current(state, row, now)
    local start = now - now % row[PERIOD]
    if state.at and state.at >= start then return state.at, state.count end
    return start, 0
  end
  local function reset_after(state, row, now)
    local start = current(state, row, now)
    return start + row[PERIOD] - max(now, start)
  end
  return {
    load = function(raw)
      if not raw then return {} end
      local at, count = decode(RECORD, raw)
      return { at = at, count = count }
    end,
    encode = function(state) return pack(RECORD, state.at, state.count) end,
    remaining = function(state, row, now)
      local _, count = current(state, row, now)
      return max(0, row[LIMIT] - count)
    end,
    take = function(state, row, now)
      local start, count = current(state, row, now)
      state.at, state.count = start, min(count + row[HITS], HITS_MAX)
    end,
    unused = function(state, row, now)
      local _, count = current(state, row, now)
      return count == 0
    end,
    refund = function(state, row) state.count = max(0, state.count - row[HITS]) end,
    clear = function(state) state.at = nil end,
    reset_after = reset_after,
    retry_after = reset_after,
  }
end
