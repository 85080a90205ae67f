-- Counts of sub-windows. State: a record for each that is not empty, its start and count, oldest
-- first; in Lua two numbers each in one list.
if has_counters then
  -- The longest sub-window whose square fits 53 bits.
  local SQUARE_FITS = 94906265
  local states, stored_sizes = {}, {}
  local function floor_div(a, b)
    local quotient = floor(a / b)
    if quotient * b > a then return quotient - 1 end
    return quotient
  end
  local function moment(state) return max(now, state[#state - 1] or 0) end
  local function fades(ask, at) return at + ask[A] * ask[B] end
  local function leaves(ask, at) return fades(ask, at) + ask[B] end
  local function countable(ask, count)
    if ask[B] <= SQUARE_FITS then return count end
    return min(count, floor_div(HITS_MAX, ask[B]))
  end
  local function overlap(ask, count, left)
    if ask[ALGORITHM] == COUNTER or left >= ask[B] then return count end
    count = countable(ask, count)
    if count * left <= HITS_MAX then return ceil_div(count * left, ask[B]) end
    local whole_hits = floor_div(count, ask[B])
    return whole_hits * left + ceil_div((count - whole_hits * ask[B]) * left, ask[B])
  end
  -- Where in the list the first sub-window stands that counts at `at`.
  local function first_live(state, ask, at)
    local first, gone = 1, at - (ask[A] + 1) * ask[B]
    while state[first] and state[first] <= gone do first = first + 2 end
    return first
  end
  local function drop_gone(key, ask)
    local state = states[key]
    local first, size = first_live(state, ask, moment(state)), #state
    if first == 1 then return end
    for at = 1, size do state[at] = state[at + first - 1] end
    stored_sizes[key] = nil
  end
  local function sum(state, ask)
    local at, total = moment(state), 0
    local fading = at - ask[A] * ask[B]
    for index = first_live(state, ask, at), #state, 2 do
      local count = state[index + 1]
      if state[index] < fading then count = overlap(ask, count, ask[B] - (fading - state[index])) end
      total = total + count
      if total > HITS_MAX then total = HITS_MAX end
    end
    return total
  end
  local function measure(key, ask)
    local state = states[key]
    used[key], resets[key] = sum(state, ask), 0
    if state[1] then resets[key] = max(0, leaves(ask, state[#state - 1]) - moment(state)) end
  end
  local function open(key, ask)
    local raw, state = values[key] or '', {}
    local records = floor(#raw / RECORD_BYTES)
    stored_sizes[key] = nil
    if records > 0 then
      state = { decode('<' .. rep('I6I7', records), raw) }
      state[#state] = nil
      stored_ats[key] = state[#state - 1]
      if #raw == records * RECORD_BYTES then stored_sizes[key] = #state end
    end
    states[key] = state
    measure(key, ask)
  end
  local function note(key, ask)
    drop_gone(key, ask)
    local state = states[key]
    local at = moment(state)
    local start, size = at - at % ask[B], #state
    if state[size - 1] == start then
      state[size] = min(state[size] + ask[HITS], HITS_MAX)
    else
      state[size + 1], state[size + 2] = start, ask[HITS]
    end
    resets[key] = leaves(ask, start) - at
  end
  local function refund(key, ask)
    drop_gone(key, ask)
    local state, left = states[key], ask[HITS]
    stored_sizes[key] = nil
    for at = #state, 2, -2 do
      if state[at] > left then
        state[at] = state[at] - left
        break
      end
      left = left - state[at]
      state[at], state[at - 1] = nil, nil
    end
    measure(key, ask)
    if used[key] == 0 then
      states[key], resets[key] = {}, 0
    end
  end
  -- Its expiry follows from the newest sub-window. Where only that one's count has changed, only
  -- that is written.
  local function store(key, ask)
    local state = states[key]
    local size = #state
    local lasts = stored_ats[key] == state[size - 1]
    if lasts and stored_sizes[key] == size and not replay then
      local offset = string.format('%d', size / 2 * RECORD_BYTES - 7)
      call('SETRANGE', KEYS[key], offset, pack('<I7', state[size]))
      return nil, true
    end
    local raw = pack('<' .. rep('I6I7', size / 2), spread(state))
    return raw, lasts, leaves(ask, state[size - 1]) + EXPIRY_SLACK, true
  end
  -- The first moment at which a fading sub-window weighs no more than `room`: with the most
  -- milliseconds left for which it does.
  local function fits(ask, at, count, room)
    if ask[ALGORITHM] == COUNTER or count == 0 then return leaves(ask, at) end
    count = countable(ask, count)
    local left = min(floor(room / count * ask[B]), ask[B])
    while left > 0 and overlap(ask, count, left) > room do left = left - 1 end
    while left < ask[B] and overlap(ask, count, left + 1) <= room do left = left + 1 end
    return leaves(ask, at) - left
  end
  local function retry(key, ask)
    local state = states[key]
    local at, room, later = moment(state), ask[CAPACITY] - ask[TESTED], 0
    for index = #state - 1, first_live(state, ask, at), -2 do
      local through = later + state[index + 1]
      if through > room then
        return max(1, fits(ask, state[index], state[index + 1], room - later) - at)
      end
      later = through
    end
    return 1
  end
  for algorithm = COUNTER, WEIGHTED_COUNTER do
    opens[algorithm], stores[algorithm] = open, store
    notes[algorithm], refunds[algorithm], retries[algorithm] = note, refund, retry
  end
end
