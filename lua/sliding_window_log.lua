-- Sliding window log: every hit of the last period.
--
-- State: a header (`dead` and `len` in 4 bytes each, `base` in 7, the newest record), then the
-- body. Each record of the body has the running total of hits up to and including its moment, so
-- that sums are differences and searches are binary. After 2^53 - 1 the total continues from 0. The
-- first `dead` records have left the period. They are dropped when they are more than a quarter of
-- the live ones. A small body is read and written whole, so that Redis has no reason to allocate
-- memory in advance. Of a large body, only the header and the records that a decision needs are
-- read and written.
--
-- Dropping dead records copies all live ones. Up to COPY_MAX of them are copied in one write. If
-- there are more, they are moved to the front in steps of STEP_MAX, one step per write, so that no
-- write takes long. In between, the live records are in two parts: the moved ones, from slot 1 on,
-- and the rest, from slot `back` on. The header's `dead` is then `back`, and slot 0 has a moves
-- record: `back`, a tag that no moment has, the index of the first live record, and `gap`, the
-- number of slots by which records are moved. A record keeps its index while it moves: if the index
-- is below `back`, its slot is the index less `gap`. An older script that does not know moves
-- records counts the hits of the moved part as hits of the record at `back`. This is later than
-- they came, so it never admits more than the limit.
if has_logs then
  local HEADER, HEADER_BYTES = '<I4I4I7I6I7', 28
  local BODY_MAX = 1048576
  local COPY_MAX, STEP_MAX = 256, 256
  local MOVES, MOVES_AT, MOVES_TAG = '<I3I3I3I4', 29, 16777215
  -- The position of the tag's last byte, and its value. No moment before the year 10,000 has it
  -- there.
  local TAG_AT, TAG_BYTE = 34, 255
  -- The bytes of 24 records.
  local SMALL_BYTES = 312
  local states = {}
  local function text(number) return string.format('%d', number) end
  local function total_add(total, hits)
    if total >= HITS_MAX + 1 - hits then return total - (HITS_MAX + 1 - hits) end
    return total + hits
  end
  local function total_between(base, total)
    if total >= base then return total - base end
    return total - base + (HITS_MAX + 1)
  end
  local function offset(state, index)
    if index < state.back then index = index - state.gap end
    return HEADER_BYTES + index * RECORD_BYTES
  end
  -- The stored bytes of `count` records from `first`. They must not extend across a gap in the
  -- body.
  local function stored_bytes(state, first, count)
    if count < 1 then return '' end
    local from = offset(state, first)
    return call('GETRANGE', state.key, text(from), text(from + count * RECORD_BYTES - 1))
  end
  -- The moment and the total of a record.
  local function record(state, index)
    local at = state.ats[index]
    if at then return at, state.totals[index] end
    local total
    if state.body then
      at, total = decode(RECORD, state.body, index * RECORD_BYTES + 1)
    else
      local from = offset(state, index)
      if state.head and from < HEADER_BYTES + SMALL_BYTES then
        at, total = decode(RECORD, state.head, from + 1)
      else
        at, total = decode(RECORD, stored_bytes(state, index, 1))
      end
    end
    state.ats[index], state.totals[index] = at, total
    return at, total
  end
  -- The first index for which `before` does not hold. Searches from the front in growing steps,
  -- then halves.
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
  local function moment(state) return max(now, state.at or 0) end
  -- The first record in the period at `now`, and the total before it. They are found once, because
  -- `now` is the same for the whole run, and change only with the body.
  local function live(state, ask)
    if not state.live_first then
      local gone_at = moment(state) - ask[PERIOD]
      local function gone(index) return record(state, index) <= gone_at end
      local first = partition_point(state.dead, state.len, gone)
      state.live_first, state.live_base = first, state.base
      if first ~= state.dead then
        local _, total = record(state, first - 1)
        state.live_base = total
      end
    end
    return state.live_first, state.live_base
  end
  local function is_small(state) return state.body and #state.body <= SMALL_BYTES end
  local function live_bytes(state)
    if state.body then
      return state.body:sub(state.dead * RECORD_BYTES + 1, state.len * RECORD_BYTES)
    end
    local back = max(state.dead, state.back)
    return stored_bytes(state, state.dead, back - state.dead)
      .. stored_bytes(state, back, state.len - back)
  end
  -- Ends the moving of records if one of the two parts is empty.
  local function end_moves(state)
    local back, gap = state.back, state.gap
    if gap == 0 or state.dead < back and back < state.len then return end
    if state.dead < back then
      state.dead, state.len = state.dead - gap, state.len - gap
      state.live_first = state.dead
      state.ats, state.totals = {}, {}
    end
    state.back, state.gap = 0, 0
  end
  -- Moves the next records to the front, at most as many as fit into the gap. The slots written to
  -- hold no live records until the header is written.
  local function move_some(state)
    if state.gap == 0 then
      state.back, state.gap, state.has_moves = state.dead, state.dead - 1, true
    end
    local count = min(STEP_MAX, state.gap, state.len - state.back)
    local moved = stored_bytes(state, state.back, count)
    local first = state.back
    state.back, state.head = first + count, false
    call('SETRANGE', state.key, text(offset(state, first)), moved)
    end_moves(state)
  end
  local function bury(state, ask)
    state.dead, state.base = live(state, ask)
    if state.gap > 0 then end_moves(state) end
    if is_small(state) then
      if state.dead == 0 then return end
    elseif state.gap == 0 and state.dead * 5 <= state.len then
      return
    end
    local count = state.len - state.dead
    if not state.body and count > COPY_MAX then return move_some(state) end
    state.body = live_bytes(state)
    state.len, state.dead, state.live_first, state.back, state.gap = count, 0, 0, 0, 0
    state.ats, state.totals = {}, {}
  end
  local function push_newest(state)
    local raw = pack(RECORD, state.at, state.total)
    if state.body then
      -- A refund in this run may have left records after the end.
      local first = state.len * RECORD_BYTES
      state.body = state.body:sub(1, first) .. raw .. state.body:sub(first + RECORD_BYTES + 1)
    else
      state.head = false
      call('SETRANGE', state.key, text(offset(state, state.len)), raw)
    end
    state.ats[state.len], state.totals[state.len] = state.at, state.total
    state.len = state.len + 1
    if state.len - state.dead > BODY_MAX then
      state.dead = state.dead + 1
      state.live_first = state.dead
    end
  end
  opens[LOG] = function(key, ask)
    used[key], resets[key] = 0, 0
    -- Reads one byte more than a small log has, which shows whether the log is large.
    local raw = call('GETRANGE', KEYS[key], '0', text(HEADER_BYTES + SMALL_BYTES))
    local dead, len, base, at, total, body, head = 0, 0, 0, nil, nil, false, false
    if #raw <= HEADER_BYTES + SMALL_BYTES then body = raw:sub(HEADER_BYTES + 1) else head = raw end
    if raw ~= '' then dead, len, base, at, total = decode(HEADER, raw) end
    -- All fields are set at once, because a table that grows is allocated again.
    local state = { key = KEYS[key], dead = dead, len = len, base = base, at = at, total = total,
      back = 0, gap = 0, body = body, head = head, has_moves = false, ats = {}, totals = {},
      live_first = false, live_base = base }
    states[key] = state
    if not at then return end
    stored_ats[key] = at
    if head and head:byte(TAG_AT) == TAG_BYTE then
      local back, tag, first, gap = decode(MOVES, head, MOVES_AT)
      state.has_moves = tag == MOVES_TAG
      -- If `back` is not `dead`, an older script that does not know moves records has written
      -- since, and the moved part has left the period.
      if state.has_moves and back == dead then state.dead, state.back, state.gap = first, back, gap end
    end
    local left = state.at + ask[PERIOD] - moment(state)
    if left > 0 then
      local _, base = live(state, ask)
      used[key], resets[key] = total_between(base, state.total), left
    end
  end
  notes[LOG] = function(key, ask)
    local state = states[key]
    resets[key] = ask[PERIOD]
    if used[key] == 0 then
      state.dead, state.len, state.base, state.body = 0, 0, 0, ''
      state.back, state.gap = 0, 0
      state.ats, state.totals, state.live_first = {}, {}, false
      state.at, state.total = moment(state), ask[HITS]
      return
    end
    local at = moment(state)
    bury(state, ask)
    if state.at ~= at then push_newest(state) end
    state.at, state.total = at, total_add(state.total, min(ask[HITS], HITS_MAX - used[key]))
  end
  refunds[LOG] = function(key, ask)
    local state = states[key]
    local keep = max(0, used[key] - ask[HITS])
    bury(state, ask)
    used[key] = keep
    if keep == 0 then
      state.at, state.dead, state.len, state.base, resets[key] = nil, 0, 0, 0, 0
      return
    end
    local function before(index)
      local _, total = record(state, index)
      return total_between(state.base, total) < keep
    end
    local stays = partition_point(state.dead, state.len, before)
    if stays < state.len then
      -- If the clock has stepped back, the log's moment is that of its newest hit.
      state.at = record(state, stays)
      state.len = stays
      if is_small(state) then state.body = state.body:sub(1, stays * RECORD_BYTES) end
      end_moves(state)
    end
    state.total = total_add(state.base, keep)
    resets[key] = max(0, state.at + ask[PERIOD] - moment(state))
  end
  -- Writes the whole body if it was read (it is small) or is new, otherwise only the header. A key
  -- lives for a period and a quarter, so that only the first write in each quarter sets its expiry.
  stores[LOG] = function(key, ask)
    local state, quarter, stored = states[key], max(ask[PERIOD] / 4, 1), stored_ats[key]
    local lasts = stored and stored - stored % quarter == state.at - state.at % quarter
    local expires = floor(state.at + ask[PERIOD] + quarter) + EXPIRY_SLACK
    local moves, dead = state.gap > 0, state.dead
    if moves then dead = state.back end
    local header = pack(HEADER, dead, state.len, state.base, state.at, state.total)
    if state.body then return header .. state.body, lasts, expires, true end
    if moves then
      header = header .. pack(MOVES, state.back, MOVES_TAG, state.dead, state.gap)
    elseif state.has_moves then
      header = header .. rep('\0', RECORD_BYTES)
    end
    return header, lasts, expires
  end
  retries[LOG] = function(key, ask)
    local state = states[key]
    if not state.at then return 1 end
    local first, base = live(state, ask)
    local free = used[key] - (ask[CAPACITY] - ask[TESTED])
    local function before(index)
      local _, total = record(state, index)
      return total_between(base, total) < free
    end
    local at, frees = partition_point(first, state.len, before), state.at
    if at < state.len then frees = record(state, at) end
    return max(1, frees + ask[PERIOD] - moment(state))
  end
end
