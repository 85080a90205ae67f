-- The decision: read all, test all, take from all or from none, write what moved.
local replay = ARGV[1] ~= ''
local now = tonumber(ARGV[1])
if not replay then
  local time = call('TIME')
  now = time[1] * 1000 + floor(time[2] / 1000)
end
local values = {}
local whole = tonumber(ARGV[2])
if whole > 0 then values = call('MGET', spread(KEYS, 1, whole)) end
local states, moved = {}, {}
local function state_of(row, ops)
  local state = states[row[KEY]]
  if not state then
    state = ops.load(values[row[KEY]], KEYS[row[KEY]])
    states[row[KEY]] = state
  end
  return state
end
-- What is tested: overdraft tests for one hit, and so does an ask for none.
local function tested_hits(row)
  if row[OVERDRAFT] == 1 or row[HITS] == 0 then return 1 end
  return row[HITS]
end
local function move(row, ops, state)
  if row[MODE] == TAKE then
    ops.take(state, row, now)
  elseif ops.unused(state, row, now) then
    return
  else
    ops.refund(state, row, now)
    if ops.unused(state, row, now) then ops.clear(state) end
  end
  moved[row[KEY]] = row
end
local function retry_after(row, ops, state)
  local hits = tested_hits(row)
  if hits > row[LIMIT] then return 0 end
  local taken = row[HITS]
  row[HITS] = hits
  local wait = ops.retry_after(state, row, now)
  row[HITS] = taken
  return wait
end
local function decide(request)
  local rows, count = {}, #request / ROW_BYTES
  local rejected, takes_nothing = false, false
  local fits = {}
  for at = 1, count do
    local row = { decode(ROW, request, (at - 1) * ROW_BYTES + 1) }
    local ops = operations(row[ALGORITHM])
    local refunds = row[MODE] == REFUND and row[HITS] > 0
    local within = refunds or tested_hits(row) <= ops.remaining(state_of(row, ops), row, now)
    if not within and row[SHADOW] == 0 then
      rejected = true
      takes_nothing = takes_nothing or row[OVERDRAFT] == 0
    end
    rows[at], fits[at] = row, within
  end
  local statuses = {}
  for at = 1, count do
    local row, within, delay, retry = rows[at], fits[at], 0, 0
    local ops = operations(row[ALGORITHM])
    local state, mode, hits = state_of(row, ops), row[MODE], row[HITS]
    if row[ALGORITHM] == LEAKY_BUCKET and mode == TAKE and hits > 0 and within and not rejected then
      delay = ops.reset_after(state, row, now)
    end
    local moves = (mode == REFUND and not rejected)
      or (mode == TAKE and (row[OVERDRAFT] == 1 or (within and not rejected)))
    if moves and hits > 0 and not takes_nothing then move(row, ops, state) end
    if not within then retry = retry_after(row, ops, state) end
    statuses[at] = pack(STATUS, within and 1 or 0, ops.remaining(state, row, now),
      ops.reset_after(state, row, now), retry, delay)
  end
  return table.concat(statuses)
end
local replies = {}
for request = 3, #ARGV do replies[request - 2] = decide(ARGV[request]) end
for index, row in pairs(moved) do
  local ops, state, key = operations(row[ALGORITHM]), states[index], KEYS[index]
  -- Where the clock has stepped back, also until it is where it was.
  local ahead = max(0, (state.at or state[#state - 1] or now) - now)
  local keep = ops.reset_after(state, row, now) + ahead + EXPIRY_SLACK
  if replay then keep = keep + REPLAY_SLACK end
  if not state.at and not state[1] then
    call('DEL', key)
  elseif ops.store then
    ops.store(state, keep)
  else
    call('SET', key, ops.encode(state), 'PX', keep)
  end
end
return replies
