-- Every hit of the last period. State: a header (dead and len in 4 bytes each, base in 7, the
-- newest record), then the body, whose records hold the running total of hits through their
-- moment, so that sums are differences and searches are binary. The total wraps at 2^53. The
-- first `dead` records have left the period; they are dropped when they are more than a quarter
-- of the others. A small body is read and written whole, which gives Redis no reason to
-- allocate ahead; of a large one only the header and the records that a decision needs are.
makers[LOG] = function()
  local HEADER, HEADER_BYTES = '<I4I4I7I6I7', 28
  local BODY_MAX = 1048576
  local SMALL_BYTES = 24 * RECORD_BYTES
  local function total_add(total, hits)
    if total >= HITS_MAX + 1 - hits then return total - (HITS_MAX + 1 - hits) end
    return total + hits
  end
  local function total_between(base, total)
    if total >= base then return total - base end
    return total - base + (HITS_MAX + 1)
  end
  local function offset(index) return HEADER_BYTES + index * RECORD_BYTES end
  local function read(state, index)
    if state.body then return decode(RECORD, state.body, index * RECORD_BYTES + 1) end
    local first = offset(index)
    return decode(RECORD, call('GETRANGE', state.key, first, first + RECORD_BYTES - 1))
  end
  local function record(state, index)
    local found = state.read[index]
    if not found then
      local at, total = read(state, index)
      found = { at = at, total = total }
      state.read[index] = found
    end
    return found
  end
  -- The first index from the front of the body for which `before` no longer holds; near ones
  -- are found first.
  local function partition_point(first, last, before)
    local low, high, step = first, first, 1
    while high < last and before(high) do
      low, high, step = high + 1, high + step, step * 2
    end
    high = min(high, last)
    while low < high do
      local middle = floor((low + high) / 2)
      if before(middle) then low = middle + 1 else high = middle end
    end
    return low
  end
  local function moment(state, now) return max(now, state.at) end
  -- The first record in the period at `now`, and the total before it. Each run has one clock,
  -- so that they are found once and change only with the body.
  local function live(state, row, now)
    if not state.live_first then
      local gone_at = moment(state, now) - row[PERIOD]
      local function gone(index) return record(state, index).at <= gone_at end
      local first = partition_point(state.dead, state.len, gone)
      state.live_first = first
      state.live_base = first == state.dead and state.base or record(state, first - 1).total
    end
    return state.live_first, state.live_base
  end
  local function used(state, row, now)
    if not state.at or state.at + row[PERIOD] <= moment(state, now) then return 0 end
    local _, base = live(state, row, now)
    return total_between(base, state.total)
  end
  local function is_small(state) return state.body and #state.body <= SMALL_BYTES end
  local function live_bytes(state)
    if state.body then
      return state.body:sub(state.dead * RECORD_BYTES + 1, state.len * RECORD_BYTES)
    end
    return call('GETRANGE', state.key, offset(state.dead), offset(state.len) - 1)
  end
  local function bury(state, row, now)
    state.dead, state.base = live(state, row, now)
    if state.dead > 0 and is_small(state) or state.dead * 5 > state.len then
      state.body = live_bytes(state)
      state.len, state.dead, state.read, state.live_first = state.len - state.dead, 0, {}, 0
    end
  end
  local function push_newest(state)
    local raw = pack(RECORD, state.at, state.total)
    if state.body then
      -- A refund in this run may have left records behind the end.
      local first = state.len * RECORD_BYTES
      state.body = state.body:sub(1, first) .. raw .. state.body:sub(first + RECORD_BYTES + 1)
    else
      call('SETRANGE', state.key, offset(state.len), raw)
    end
    state.read[state.len] = { at = state.at, total = state.total }
    state.len = state.len + 1
    if state.len - state.dead > BODY_MAX then
      state.dead = state.dead + 1
      state.live_first = state.dead
    end
  end
  return {
    load = function(_, key)
      local state = { key = key, dead = 0, len = 0, base = 0, read = {} }
      -- One byte more than a small log has tells a large one.
      local raw = call('GETRANGE', key, 0, HEADER_BYTES + SMALL_BYTES)
      if raw ~= '' then
        state.dead, state.len, state.base, state.at, state.total = decode(HEADER, raw)
      end
      if #raw <= HEADER_BYTES + SMALL_BYTES then state.body = raw:sub(HEADER_BYTES + 1) end
      return state
    end,
    remaining = function(state, row, now) return max(0, row[LIMIT] - used(state, row, now)) end,
    take = function(state, row, now)
      local already = used(state, row, now)
      if already == 0 then
        state.dead, state.len, state.base, state.body, state.read = 0, 0, 0, '', {}
        state.live_first = nil
        state.at, state.total = state.at and moment(state, now) or now, row[HITS]
        return
      end
      local at = moment(state, now)
      bury(state, row, now)
      local hits = min(row[HITS], HITS_MAX - already)
      if state.at ~= at then push_newest(state) end
      state.at, state.total = at, total_add(state.total, hits)
    end,
    unused = function(state, row, now) return used(state, row, now) == 0 end,
    refund = function(state, row, now)
      local keep = used(state, row, now) - row[HITS]
      bury(state, row, now)
      if keep <= 0 then
        state.at = nil
        return
      end
      local function before(index) return total_between(state.base, record(state, index).total) < keep end
      local stays = partition_point(state.dead, state.len, before)
      if stays < state.len then
        state.at = record(state, stays).at
        state.len = stays
        if is_small(state) then state.body = state.body:sub(1, stays * RECORD_BYTES) end
      end
      state.total = total_add(state.base, keep)
    end,
    clear = function(state)
      state.at, state.dead, state.len, state.base = nil, 0, 0, 0
    end,
    reset_after = function(state, row, now)
      if not state.at then return 0 end
      return max(0, state.at + row[PERIOD] - moment(state, now))
    end,
    retry_after = function(state, row, now)
      if not state.at then return 1 end
      local already = used(state, row, now)
      local first, base = live(state, row, now)
      local free = already - (row[LIMIT] - row[HITS])
      local function before(index) return total_between(base, record(state, index).total) < free end
      local at = partition_point(first, state.len, before)
      local frees = at < state.len and record(state, at).at or state.at
      return max(1, frees + row[PERIOD] - moment(state, now))
    end,
    -- A body in hand is small or new and written whole; of another the header is.
    store = function(state, keep)
      local header = pack(HEADER, state.dead, state.len, state.base, state.at, state.total)
      if state.body then
        call('SET', state.key, header .. state.body, 'PX', keep)
      else
        call('SETRANGE', state.key, 0, header)
        call('PEXPIRE', state.key, keep)
      end
    end,
  }
end
