-- Counts of sub-windows. State: a record for each that is not empty, its start and count, oldest
-- first; in Lua two numbers each in one list.
local function counter()
  -- The longest sub-window whose square fits 53 bits.
  local SQUARE_FITS = 94906265
  local function moment(state, now) return max(now, state[#state - 1] or 0) end
  local function fades(row, at) return at + row[A] * row[B] end
  local function leaves(row, at) return fades(row, at) + row[B] end
  local function countable(row, count)
    if row[B] <= SQUARE_FITS then return count end
    return min(count, floor_div(HITS_MAX, row[B]))
  end
  local function overlap(row, count, left)
    if row[ALGORITHM] == COUNTER or left >= row[B] then return count end
    count = countable(row, count)
    if count * left <= HITS_MAX then return ceil_div(count * left, row[B]) end
    local whole = floor_div(count, row[B])
    return whole * left + ceil_div((count - whole * row[B]) * left, row[B])
  end
  -- Where in the list the first sub-window stands that counts at `now`.
  local function first_live(state, row, now)
    local first = 1
    while state[first] and leaves(row, state[first]) <= now do first = first + 2 end
    return first
  end
  local function drop_gone(state, row, now)
    local first, size = first_live(state, row, now), #state
    if first == 1 then return end
    for at = 1, size do state[at] = state[at + first - 1] end
  end
  local function used(state, row, now)
    now = moment(state, now)
    local sum = 0
    for at = first_live(state, row, now), #state, 2 do
      local fading = max(0, now - fades(row, state[at]))
      sum = min(sum + overlap(row, state[at + 1], row[B] - fading), HITS_MAX)
    end
    return sum
  end
  -- The first moment at which a fading sub-window weighs no more than `room`: with the most
  -- milliseconds left for which it does.
  local function fits(row, at, count, room)
    if row[ALGORITHM] == COUNTER or count == 0 then return leaves(row, at) end
    count = countable(row, count)
    local left = min(floor(room / count * row[B]), row[B])
    while left > 0 and overlap(row, count, left) > room do left = left - 1 end
    while left < row[B] and overlap(row, count, left + 1) <= room do left = left + 1 end
    return leaves(row, at) - left
  end
  return {
    load = function(raw)
      if not raw then return {} end
      local records = #raw / RECORD_BYTES
      local state = { decode('<' .. string.rep('I6I7', records), raw) }
      state[#state] = nil
      return state
    end,
    encode = function(state) return pack('<' .. string.rep('I6I7', #state / 2), spread(state)) end,
    remaining = function(state, row, now) return max(0, row[LIMIT] - used(state, row, now)) end,
    take = function(state, row, now)
      now = moment(state, now)
      drop_gone(state, row, now)
      local start, size = now - now % row[B], #state
      if state[size - 1] == start then
        state[size] = min(state[size] + row[HITS], HITS_MAX)
      else
        state[size + 1], state[size + 2] = start, row[HITS]
      end
    end,
    unused = function(state, row, now) return used(state, row, now) == 0 end,
    refund = function(state, row, now)
      drop_gone(state, row, moment(state, now))
      local left = row[HITS]
      for at = #state, 2, -2 do
        if state[at] > left then
          state[at] = state[at] - left
          return
        end
        left = left - state[at]
        state[at], state[at - 1] = nil, nil
      end
    end,
    clear = function(state)
      for at = #state, 1, -1 do state[at] = nil end
    end,
    reset_after = function(state, row, now)
      if #state == 0 then return 0 end
      return max(0, leaves(row, state[#state - 1]) - moment(state, now))
    end,
    retry_after = function(state, row, now)
      now = moment(state, now)
      local room, later = row[LIMIT] - row[HITS], 0
      for at = #state - 1, first_live(state, row, now), -2 do
        local through = later + state[at + 1]
        if through > room then return max(1, fits(row, state[at], state[at + 1], room - later) - now) end
        later = through
      end
      return 1
    end,
  }
end
makers[COUNTER], makers[WEIGHTED_COUNTER] = counter, counter
