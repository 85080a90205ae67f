-- Token bucket, leaky bucket, GCRA: water that drains. State: a record, the moment and the units
-- of water then, and in 6 bytes the units that a hit weighed: a limit changed since converts.
local function bucket()
  local function weigh(row, hits) return min(hits * row[B], HITS_MAX) end
  local function level(state, row, now)
    if not state.at then return now, 0 end
    local at, units = max(now, state.at), state.units
    if state.weight ~= row[B] then units = weigh(row, ceil_div(units, state.weight)) end
    local elapsed = at - state.at
    if elapsed >= ceil_div(units, row[A]) then return at, 0 end
    return at, units - elapsed * row[A]
  end
  return {
    load = function(raw)
      if not raw then return {} end
      local at, units, weight = decode('<I6I7I6', raw)
      return { at = at, units = units, weight = weight }
    end,
    encode = function(state) return pack('<I6I7I6', state.at, state.units, state.weight) end,
    remaining = function(state, row, now)
      local _, units = level(state, row, now)
      return floor_div(max(0, row[LIMIT] * row[B] - units), row[B])
    end,
    take = function(state, row, now)
      local at, units = level(state, row, now)
      state.at, state.units, state.weight = at, min(units + weigh(row, row[HITS]), HITS_MAX), row[B]
    end,
    unused = function(state, row, now)
      local _, units = level(state, row, now)
      return units == 0
    end,
    refund = function(state, row, now)
      local at, units = level(state, row, now)
      state.at, state.units, state.weight = at, max(0, units - weigh(row, row[HITS])), row[B]
    end,
    clear = function(state) state.at = nil end,
    reset_after = function(state, row, now)
      local _, units = level(state, row, now)
      return ceil_div(units, row[A])
    end,
    retry_after = function(state, row, now)
      local _, units = level(state, row, now)
      local room = (row[LIMIT] - row[HITS]) * row[B]
      return max(1, ceil_div(max(0, units - room), row[A]))
    end,
  }
end
makers[BUCKET], makers[LEAKY_BUCKET] = bucket, bucket
