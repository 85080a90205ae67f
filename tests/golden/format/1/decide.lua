local call, floor, min, max = redis.call, math.floor, math.min, math.max
local pack, decode, spread, rep = struct.pack, struct.unpack, unpack, string.rep
local function ceil_div(a, b)
local quotient = floor(a / b)
if quotient * b < a then return quotient + 1 end
return quotient
end
local replay = ARGV[1] ~= ''
local now = tonumber(ARGV[1])
if not replay then
local time = call('TIME')
now = time[1] * 1000 + floor(time[2] / 1000)
end
local asks, has_logs, has_counters, has_quotas = {}, false, false, false
for at = 1, #ARGV[3] / 37 do
local algorithm, mode, role, excess, hits, limit, period, a, b =
decode('<I1I1I1I1I7I7I6I7I6', ARGV[3], (at - 1) * 37 + 1)
local weight, drain = 1, false
if algorithm >= 5 then weight, drain = b, a end
local tested = weight
if excess ~= 1 and hits > 0 then tested = hits * weight end
asks[at] = { algorithm, mode, role, excess, hits, limit, period, a, b,
weight, limit * weight, tested, min(hits * weight, 9007199254740991), drain }
if role >= 2 then has_quotas = true end
if algorithm == 2 then
has_logs = true
elseif algorithm == 3 or algorithm == 4 then
has_counters = true
end
end
local plan_size = #ARGV[4] / 2
local plan = { decode('<' .. rep('I2', min(plan_size, 4000)), ARGV[4]) }
for at = 4000 + 1, plan_size do plan[at] = decode('<I2', ARGV[4], at * 2 - 1) end
local whole = tonumber(ARGV[2])
local values = {}
if whole > 0 then values = call('MGET', spread(KEYS, 1, min(whole, 4000))) end
for key = 4000 + 1, whole do values[key] = call('GET', KEYS[key]) end
local none, room = {}, min(#KEYS, 4000)
local opened, moved = { spread(none, 1, room) }, { spread(none, 1, room) }
local used, resets = { spread(none, 1, room) }, { spread(none, 1, room) }
local ats, stored_ats = { spread(none, 1, room) }, { spread(none, 1, room) }
local opens, notes, refunds, stores, retries
if has_logs or has_counters then opens, notes, refunds, stores, retries = {}, {}, {}, {}, {} end
local expiries, expires_word, expire_command, expiry_from = {}, 'PXAT', 'PEXPIREAT', 0
if replay then expires_word, expire_command, expiry_from = 'PX', 'PEXPIRE', now - 3600000 end
if has_logs then
local states = {}
local function text(number) return string.format('%d', number) end
local function total_add(total, hits)
if total >= 9007199254740991 + 1 - hits then return total - (9007199254740991 + 1 - hits) end
return total + hits
end
local function total_between(base, total)
if total >= base then return total - base end
return total - base + (9007199254740991 + 1)
end
local function offset(index) return 28 + index * 13 end
local function record(state, index)
local at = state.ats[index]
if at then return at, state.totals[index] end
local total
if state.body then
at, total = decode('<I6I7', state.body, index * 13 + 1)
else
local first = offset(index)
at, total = decode('<I6I7',
call('GETRANGE', state.key, text(first), text(first + 13 - 1)))
end
state.ats[index], state.totals[index] = at, total
return at, total
end
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
local function live(state, ask)
if not state.live_first then
local gone_at = moment(state) - ask[7]
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
local function is_small(state) return state.body and #state.body <= 312 end
local function live_bytes(state)
if state.body then
return state.body:sub(state.dead * 13 + 1, state.len * 13)
end
return call('GETRANGE', state.key, text(offset(state.dead)), text(offset(state.len) - 1))
end
local function bury(state, ask)
state.dead, state.base = live(state, ask)
if state.dead > 0 and is_small(state) or state.dead * 5 > state.len then
state.body = live_bytes(state)
state.len, state.dead, state.live_first = state.len - state.dead, 0, 0
state.ats, state.totals = {}, {}
end
end
local function push_newest(state)
local raw = pack('<I6I7', state.at, state.total)
if state.body then
local first = state.len * 13
state.body = state.body:sub(1, first) .. raw .. state.body:sub(first + 13 + 1)
else
call('SETRANGE', state.key, text(offset(state.len)), raw)
end
state.ats[state.len], state.totals[state.len] = state.at, state.total
state.len = state.len + 1
if state.len - state.dead > 1048576 then
state.dead = state.dead + 1
state.live_first = state.dead
end
end
opens[2] = function(key, ask)
local state = { key = KEYS[key], dead = 0, len = 0, base = 0, ats = {}, totals = {} }
states[key], used[key], resets[key] = state, 0, 0
local raw = call('GETRANGE', state.key, '0', text(28 + 312))
if #raw <= 28 + 312 then state.body = raw:sub(28 + 1) end
if raw == '' then return end
state.dead, state.len, state.base, state.at, state.total = decode('<I4I4I7I6I7', raw)
stored_ats[key] = state.at
local left = state.at + ask[7] - moment(state)
if left > 0 then
local _, base = live(state, ask)
used[key], resets[key] = total_between(base, state.total), left
end
end
notes[2] = function(key, ask)
local state = states[key]
resets[key] = ask[7]
if used[key] == 0 then
state.dead, state.len, state.base, state.body = 0, 0, 0, ''
state.ats, state.totals, state.live_first = {}, {}, nil
state.at, state.total = moment(state), ask[5]
return
end
local at = moment(state)
bury(state, ask)
if state.at ~= at then push_newest(state) end
state.at, state.total = at, total_add(state.total, min(ask[5], 9007199254740991 - used[key]))
end
refunds[2] = function(key, ask)
local state = states[key]
local keep = max(0, used[key] - ask[5])
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
state.at = record(state, stays)
state.len = stays
if is_small(state) then state.body = state.body:sub(1, stays * 13) end
end
state.total = total_add(state.base, keep)
resets[key] = max(0, state.at + ask[7] - moment(state))
end
stores[2] = function(key, ask)
local state, quarter, stored = states[key], max(ask[7] / 4, 1), stored_ats[key]
local lasts = stored and stored - stored % quarter == state.at - state.at % quarter
local expires = floor(state.at + ask[7] + quarter) + 1000
local header = pack('<I4I4I7I6I7', state.dead, state.len, state.base, state.at, state.total)
if state.body then return header .. state.body, lasts, expires, true end
return header, lasts, expires
end
retries[2] = function(key, ask)
local state = states[key]
if not state.at then return 1 end
local first, base = live(state, ask)
local free = used[key] - (ask[11] - ask[12])
local function before(index)
local _, total = record(state, index)
return total_between(base, total) < free
end
local at, frees = partition_point(first, state.len, before), state.at
if at < state.len then frees = record(state, at) end
return max(1, frees + ask[7] - moment(state))
end
end
if has_counters then
local states, stored_sizes = {}, {}
local function floor_div(a, b)
local quotient = floor(a / b)
if quotient * b > a then return quotient - 1 end
return quotient
end
local function moment(state) return max(now, state[#state - 1] or 0) end
local function fades(ask, at) return at + ask[8] * ask[9] end
local function leaves(ask, at) return fades(ask, at) + ask[9] end
local function countable(ask, count)
if ask[9] <= 94906265 then return count end
return min(count, floor_div(9007199254740991, ask[9]))
end
local function overlap(ask, count, left)
if ask[1] == 3 or left >= ask[9] then return count end
count = countable(ask, count)
if count * left <= 9007199254740991 then return ceil_div(count * left, ask[9]) end
local whole_hits = floor_div(count, ask[9])
return whole_hits * left + ceil_div((count - whole_hits * ask[9]) * left, ask[9])
end
local function first_live(state, ask, at)
local first, gone = 1, at - (ask[8] + 1) * ask[9]
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
local fading = at - ask[8] * ask[9]
for index = first_live(state, ask, at), #state, 2 do
local count = state[index + 1]
if state[index] < fading then count = overlap(ask, count, ask[9] - (fading - state[index])) end
total = total + count
if total > 9007199254740991 then total = 9007199254740991 end
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
local records = floor(#raw / 13)
stored_sizes[key] = nil
if records > 0 then
state = { decode('<' .. rep('I6I7', records), raw) }
state[#state] = nil
stored_ats[key] = state[#state - 1]
if #raw == records * 13 then stored_sizes[key] = #state end
end
states[key] = state
measure(key, ask)
end
local function note(key, ask)
drop_gone(key, ask)
local state = states[key]
local at = moment(state)
local start, size = at - at % ask[9], #state
if state[size - 1] == start then
state[size] = min(state[size] + ask[5], 9007199254740991)
else
state[size + 1], state[size + 2] = start, ask[5]
end
resets[key] = leaves(ask, start) - at
end
local function refund(key, ask)
drop_gone(key, ask)
local state, left = states[key], ask[5]
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
local function store(key, ask)
local state = states[key]
local size = #state
local lasts = stored_ats[key] == state[size - 1]
if lasts and stored_sizes[key] == size and not replay then
local offset = string.format('%d', size / 2 * 13 - 7)
call('SETRANGE', KEYS[key], offset, pack('<I7', state[size]))
return nil, true
end
local raw = pack('<' .. rep('I6I7', size / 2), spread(state))
return raw, lasts, leaves(ask, state[size - 1]) + 1000, true
end
local function fits(ask, at, count, room)
if ask[1] == 3 or count == 0 then return leaves(ask, at) end
count = countable(ask, count)
local left = min(floor(room / count * ask[9]), ask[9])
while left > 0 and overlap(ask, count, left) > room do left = left - 1 end
while left < ask[9] and overlap(ask, count, left + 1) <= room do left = left + 1 end
return leaves(ask, at) - left
end
local function retry(key, ask)
local state = states[key]
local at, room, later = moment(state), ask[11] - ask[12], 0
for index = #state - 1, first_live(state, ask, at), -2 do
local through = later + state[index + 1]
if through > room then
return max(1, fits(ask, state[index], state[index + 1], room - later) - at)
end
later = through
end
return 1
end
for algorithm = 3, 4 do
opens[algorithm], stores[algorithm] = open, store
notes[algorithm], refunds[algorithm], retries[algorithm] = note, refund, retry
end
end
local out, size, row = {}, 0, 1
while row <= plan_size do
local changed = false
while row <= plan_size do
local first, last = row + 1, row + 2 * plan[row]
local rejected, takes_nothing, status = false, false, size
for at = first, last, 2 do
local key, ask = plan[at], asks[plan[at + 1]]
local before = opened[key]
if before ~= ask then
local algorithm, drain, raw = ask[1], ask[14], values[key]
local same = before and algorithm == before[1]
and ask[8] == before[8] and ask[9] == before[9]
if not same then
if moved[key] then
changed = true
break
elseif drain then
if raw then
local at, units, weighed = decode('<I6I7I6', raw)
if #raw == 19 then stored_ats[key] = at end
if weighed ~= ask[10] then
units = min(ceil_div(units, max(weighed, 1)) * ask[10], 9007199254740991)
end
if now > at then
units, at = units - (now - at) * drain, now
if units < 0 then units = 0 end
end
ats[key], used[key] = at, units
else
ats[key], used[key] = now, 0
end
elseif algorithm == 1 then
local period = ask[7]
local start, count = now - now % period, 0
local left = start + period - now
if raw then
local at, amount = decode('<I6I7', raw)
if #raw == 13 then stored_ats[key] = at end
if at >= start then
start, count = at, amount
if at > now then left = period end
end
end
ats[key], used[key], resets[key] = start, count, left
else
opens[algorithm](key, ask)
end
end
opened[key] = ask
end
if ask[12] <= ask[11] - used[key] or ask[2] == 2 and ask[5] > 0 then
out[status + 1] = 1
else
out[status + 1] = 0
if ask[3] == 0 then
rejected = true
takes_nothing = takes_nothing or ask[4] ~= 1
end
end
status = status + 4
end
if changed then break end
if has_quotas then
local groups, count, over, refuses = {}, 0, 0, false
for at = first, last, 2 do
local ask, at_status = asks[plan[at + 1]], size + (at - first) / 2 * 4
local group = ask[3]
if group >= 2 then
if groups[group] == nil then groups[group], count = false, count + 1 end
if out[at_status + 1] == 0 then
if not groups[group] then groups[group], over = true, over + 1 end
refuses = refuses or ask[4] ~= 1
end
end
end
if count > 0 and over == count then
rejected = true
takes_nothing = takes_nothing or refuses
end
end
for at = first, last, 2 do
local key, ask = plan[at], asks[plan[at + 1]]
local algorithm, drain, mode = ask[1], ask[14], ask[2]
local within, units, wait = out[size + 1] == 1, used[key], 0
if mode == 0 and ask[5] > 0 then
local passes = within and not rejected
if passes and algorithm == 6 then wait = ceil_div(units, drain) end
if passes or ask[4] == 1 and not takes_nothing or ask[4] == 2 then
if not drain and algorithm ~= 1 then notes[algorithm](key, ask) end
units = units + ask[13]
if units > 9007199254740991 then units = 9007199254740991 end
used[key], moved[key] = units, ask
end
elseif mode == 2 and ask[5] > 0 and units > 0
and (not rejected or ask[4] == 2) then
if not drain and algorithm ~= 1 then
refunds[algorithm](key, ask)
units = used[key]
else
units = max(0, units - ask[13])
if units == 0 then
if drain then
ats[key] = now
else
ats[key] = now - now % ask[7]
resets[key] = ats[key] + ask[7] - now
end
end
end
used[key], moved[key] = units, ask
if stored_ats[key] then stored_ats[key] = -1 end
end
local left, reset = ask[11] - units, nil
if left < 0 then left = 0 end
if drain then
reset = units / drain
reset = reset - reset % 1
if reset * drain < units then reset = reset + 1 end
resets[key] = reset
if left > 0 then
local weight = ask[10]
local quotient = left / weight
quotient = quotient - quotient % 1
if quotient * weight > left then left = quotient - 1 else left = quotient end
end
else
reset = resets[key]
end
if not within and ask[12] <= ask[11] then
if drain then
wait = max(1, ceil_div(max(0, units - (ask[11] - ask[12])), drain))
elseif algorithm == 1 then
wait = reset
else
wait = retries[algorithm](key, ask)
end
end
out[size + 2], out[size + 3], out[size + 4] = left, reset, wait
size = size + 4
end
row = last + 1
end
for key = 1, #KEYS do
local ask = moved[key]
if ask then
local algorithm, at, stored = ask[1], ats[key], stored_ats[key]
local raw, lasts, expires, whole
if used[key] == 0 then
call('DEL', KEYS[key])
raw, stored_ats[key] = false, nil
else
if algorithm >= 5 then
local life, empty_at = ask[7], at + resets[key] + 1000
if life < 60000 then life = min(4 * life, 60000) end
local since = at - at % (life / 4)
raw = pack('<I6I7I6', at, used[key], ask[10])
lasts = stored and stored >= since and stored < since + life / 4 and empty_at <= since + life
expires = at + life
if expires < empty_at then expires = empty_at end
elseif algorithm == 1 then
raw, lasts, expires = pack('<I6I7', at, used[key]), stored == at, at + ask[7] + 1000
else
raw, lasts, expires, whole = stores[algorithm](key, ask)
end
lasts = lasts and not replay
local expiry = lasts or expiries[expires]
if not expiry then
expiry = string.format('%d', expires - expiry_from)
expiries[expires] = expiry
end
if stored and not whole then
if raw then call('SETRANGE', KEYS[key], '0', raw) end
if not lasts then call(expire_command, KEYS[key], expiry) end
elseif lasts then
call('SET', KEYS[key], raw, 'KEEPTTL')
else
call('SET', KEYS[key], raw, expires_word, expiry)
end
end
if changed then
if raw == nil then raw = call('GET', KEYS[key]) end
opened[key], moved[key], values[key] = nil, nil, raw
end
end
end
end
if size <= 4000 then return pack('<' .. rep('I1I7I7I7', size / 4), spread(out)) end
local replies = {}
for at = 1, size, 4 do
replies[#replies + 1] = pack('<' .. 'I1I7I7I7', spread(out, at, at + 4 - 1))
end
return table.concat(replies)
