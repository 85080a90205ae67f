-- What is asked, and what is known of each counter.
local replay = ARGV[1] ~= ''
local now = tonumber(ARGV[1])
if not replay then
  local time = call('TIME')
  now = time[1] * 1000 + floor(time[2] / 1000)
end
-- An ask with what follows from it: hits in the units that its counter is kept in (a hit of a bucket
-- weighs more than one), what of them is tested and what taken. Overdraft tests for one hit, and so
-- does an ask for none. A product over 2^53 is only compared.
local WEIGHT, CAPACITY, TESTED, TAKEN, DRAIN = 10, 11, 12, 13, 14
local asks, has_logs, has_counters, has_quotas = {}, false, false, false
for at = 1, #ARGV[3] / ASK_BYTES do
  local algorithm, mode, role, excess, hits, limit, period, a, b =
    decode(ASK, ARGV[3], (at - 1) * ASK_BYTES + 1)
  local weight, drain = 1, false
  if algorithm >= BUCKET then weight, drain = b, a end
  local tested = weight
  if excess ~= OVERDRAFT and hits > 0 then tested = hits * weight end
  asks[at] = { algorithm, mode, role, excess, hits, limit, period, a, b,
    weight, limit * weight, tested, hits * weight, drain }
  if role >= QUOTA then has_quotas = true end
  if algorithm == LOG then
    has_logs = true
  elseif algorithm == COUNTER or algorithm == WEIGHTED_COUNTER then
    has_counters = true
  end
end
local plan_size = #ARGV[4] / 2
local plan = { decode('<' .. rep('I2', min(plan_size, VALUES_MAX)), ARGV[4]) }
for at = VALUES_MAX + 1, plan_size do plan[at] = decode('<I2', ARGV[4], at * 2 - 1) end
local whole = tonumber(ARGV[2])
local values = {}
if whole > 0 then values = call('MGET', spread(KEYS, 1, min(whole, VALUES_MAX))) end
for key = VALUES_MAX + 1, whole do values[key] = call('GET', KEYS[key]) end
-- By index into KEYS, with room from the start. The ask that the state was last read for; units used
-- now; milliseconds until nothing is; the state's moment; the moment that is stored, -1 where only an
-- exact expiry will do, nil where nothing is; the ask that moved it.
local none, room = {}, min(#KEYS, VALUES_MAX)
local opened, moved = { spread(none, 1, room) }, { spread(none, 1, room) }
local used, resets = { spread(none, 1, room) }, { spread(none, 1, room) }
local ats, stored_ats = { spread(none, 1, room) }, { spread(none, 1, room) }
-- Of buckets in debt; bucket.lua says what.
local debts
-- States that are not one amount are read by `opens`, have hits noted by `notes` and given back by
-- `refunds`, are spelled by `stores`, and `retries` has the wait for an ask that does not fit. Of
-- `stores` the writing gets the bytes, nil where they are written already; whether the expiry that is
-- stored lasts, and the one that would; and whether the bytes replace the stored ones whatever size
-- those have.
local opens, notes, refunds, stores, retries
if has_logs or has_counters then opens, notes, refunds, stores, retries = {}, {}, {}, {}, {} end
local expiries, expires_word, expire_command, expiry_from = {}, 'PXAT', 'PEXPIREAT', 0
if replay then expires_word, expire_command, expiry_from = 'PX', 'PEXPIRE', now - REPLAY_SLACK end
