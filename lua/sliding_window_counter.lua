-- Sliding window counters: counts per sub-window. State: one record for each sub-window that is not
-- empty, its start and count, oldest first. All records but the newest stay in their stored bytes
-- and are summed CHUNK at a time. A table of them would cost five times as much.
if has_counters then
  -- The longest sub-window whose square fits 53 bits.
  local SQUARE_FITS = 94906265
  local START, CHUNK, CHUNK_BYTES = '<I6', 8, 104
  local chunk_of_records = '<' .. rep('I6I7', CHUNK)
  -- States by key. `raw` has the stored records, of which those from `first` up to, not including,
  -- `rest` count (indexes from 0). The newest record follows them: its start and count are in `at`
  -- and `amount`. `in_place` is true while only its count has changed.
  local states = {}
  local function floor_div(a, b)
    local quotient = floor(a / b)
    if quotient * b > a then return quotient - 1 end
    return quotient
  end
  local function moment(state) return max(now, state.at or 0) end
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
  local function record(state, index)
    return decode(RECORD, state.raw, index * RECORD_BYTES + 1)
  end
  local function start_of(state, index)
    if index == state.rest then return state.at end
    return (decode(START, state.raw, index * RECORD_BYTES + 1))
  end
  -- The first record that counts at `at`. Searches from the front in growing steps, then halves.
  local function first_live(state, ask, at)
    local gone, rest = at - (ask[A] + 1) * ask[B], state.rest
    local low, high, step = state.first, state.first, 1
    while high <= rest and start_of(state, high) <= gone do
      low, high, step = high + 1, high + step, step * 2
    end
    high = min(high, rest + 1)
    while low < high do
      local middle = floor((low + high) / 2)
      if start_of(state, middle) <= gone then low = middle + 1 else high = middle end
    end
    return low
  end
  -- The sum of the counts from `first` up to, not including, `last`. Over 2^53 it is not exact, but
  -- more than any limit.
  local function sum(raw, first, last)
    local at, ends, total = first * RECORD_BYTES + 1, last * RECORD_BYTES, 0
    while at + CHUNK_BYTES - 1 <= ends do
      local _, a, _, b, _, c, _, d, _, e, _, f, _, g, _, h = decode(chunk_of_records, raw, at)
      total, at = total + a + b + c + d + e + f + g + h, at + CHUNK_BYTES
    end
    while at < ends do
      local _, count = decode(RECORD, raw, at)
      total, at = total + count, at + RECORD_BYTES
    end
    return total
  end
  local function measure(key, ask)
    local state = states[key]
    used[key], resets[key] = 0, 0
    if not state.at then return end
    local at = moment(state)
    resets[key] = max(0, leaves(ask, state.at) - at)
    state.first = first_live(state, ask, at)
    local first, rest = state.first, state.rest
    if first > rest then return end
    local start, count, total = state.at, state.amount, 0
    if first < rest then
      start, count = record(state, first)
      total = sum(state.raw, first + 1, rest) + state.amount
    end
    local fading = at - ask[A] * ask[B]
    if start < fading then count = overlap(ask, count, ask[B] - (fading - start)) end
    used[key] = min(total + count, HITS_MAX)
  end
  local function open(key, ask)
    local raw = values[key] or ''
    local size = floor(#raw / RECORD_BYTES)
    local state = { raw = raw, first = 0, rest = 0, in_place = #raw == size * RECORD_BYTES }
    states[key] = state
    if size > 0 then
      state.rest = size - 1
      state.at, state.amount = record(state, state.rest)
      stored_ats[key] = state.at
    end
    measure(key, ask)
  end
  local function live_bytes(state)
    return state.raw:sub(state.first * RECORD_BYTES + 1, state.rest * RECORD_BYTES)
  end
  local function note(key, ask)
    local state = states[key]
    local at = moment(state)
    local start = at - at % ask[B]
    if state.first > 0 then state.in_place = false end
    if state.at == start and state.first <= state.rest then
      state.amount = min(state.amount + ask[HITS], HITS_MAX)
    else
      local raw = ''
      if state.at and state.first <= state.rest then
        raw = live_bytes(state) .. pack(RECORD, state.at, state.amount)
      end
      state.raw, state.first, state.rest = raw, 0, #raw / RECORD_BYTES
      state.at, state.amount, state.in_place = start, ask[HITS], false
    end
    resets[key] = leaves(ask, start) - at
  end
  local function refund(key, ask)
    local state, left = states[key], ask[HITS]
    state.in_place = false
    while state.at and state.amount <= left do
      left = left - state.amount
      while state.rest - state.first >= CHUNK do
        local chunk = sum(state.raw, state.rest - CHUNK, state.rest)
        if chunk > left then break end
        left, state.rest = left - chunk, state.rest - CHUNK
      end
      if state.rest > state.first then
        state.rest = state.rest - 1
        state.at, state.amount = record(state, state.rest)
      else
        state.at = nil
      end
    end
    if state.at then state.amount = state.amount - left end
    measure(key, ask)
    if used[key] == 0 then
      states[key], resets[key] = { raw = '', first = 0, rest = 0 }, 0
    end
  end
  -- The expiry depends only on the newest sub-window. If only its count has changed, only that
  -- count is written.
  local function store(key, ask)
    local state = states[key]
    local lasts = stored_ats[key] == state.at
    if lasts and state.in_place and not replay then
      local offset = string.format('%d', state.rest * RECORD_BYTES + 6)
      call('SETRANGE', KEYS[key], offset, pack('<I7', state.amount))
      return nil, true
    end
    local raw = live_bytes(state) .. pack(RECORD, state.at, state.amount)
    return raw, lasts, leaves(ask, state.at) + EXPIRY_SLACK, true
  end
  -- The first moment at which a fading sub-window counts for no more than `room`: that with the
  -- most milliseconds of it left for which it does so.
  local function fits(ask, at, count, room)
    if ask[ALGORITHM] == COUNTER or count == 0 then return leaves(ask, at) end
    count = countable(ask, count)
    local left = min(floor(room / count * ask[B]), ask[B])
    while left > 0 and overlap(ask, count, left) > room do left = left - 1 end
    while left < ask[B] and overlap(ask, count, left + 1) <= room do left = left + 1 end
    return leaves(ask, at) - left
  end
  -- From the newest sub-window to the oldest, the first with which the sum is over `room` must
  -- leave the period, at least in part.
  local function retry(key, ask)
    local state = states[key]
    local raw, first, index = state.raw, state.first, state.rest
    if not state.at or first > index then return 1 end
    local at, room, later = moment(state), ask[CAPACITY] - ask[TESTED], 0
    local start, count = state.at, state.amount
    while later + count <= room do
      later = later + count
      while index - first >= CHUNK do
        local chunk = sum(raw, index - CHUNK, index)
        if later + chunk > room then break end
        later, index = later + chunk, index - CHUNK
      end
      if index <= first then return 1 end
      index = index - 1
      start, count = record(state, index)
    end
    return max(1, fits(ask, start, count, room - later) - at)
  end
  for algorithm = COUNTER, WEIGHTED_COUNTER do
    opens[algorithm], stores[algorithm] = open, store
    notes[algorithm], refunds[algorithm], retries[algorithm] = note, refund, retry
  end
end
