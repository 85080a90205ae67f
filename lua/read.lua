-- Decodes the arguments, and reads the stored states of the counters.
local replay = ARGV[1] ~= ''
local now = tonumber(ARGV[1])
if not replay then
  local time = call('TIME')
  now = time[1] * 1000 + floor(time[2] / 1000)
end
-- A counter request is extended with values derived from it: the weight of a hit in units (more
-- than 1 for a bucket), the limit, the tested hits and the taken hits in units, and the drain of a
-- bucket. An overdraft tests one hit, and so does a request for 0 hits. A product over 2^53 is not
-- exact, and is only compared.
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
-- Tables by index into KEYS, allocated at their final size:
--   opened: the counter request that the state was last read for
--   moved: the counter request that changed the state
--   used: the units used now
--   resets: the milliseconds until none are used
--   ats: the state's moment
--   stored_ats: the stored moment; -1 if the expiry must be set exactly; nil if nothing is stored
local none, room = {}, min(#KEYS, VALUES_MAX)
local opened, moved = { spread(none, 1, room) }, { spread(none, 1, room) }
local used, resets = { spread(none, 1, room) }, { spread(none, 1, room) }
local ats, stored_ats = { spread(none, 1, room) }, { spread(none, 1, room) }
-- Debts of buckets, see bucket.lua.
local debts
-- Functions by algorithm, for states that are not one amount:
--   opens: reads a state
--   notes: adds hits
--   refunds: refunds hits
--   stores: encodes a state for writing. Returns the bytes (nil if they are already written),
--     whether the stored expiry is late enough, the expiry to set otherwise, and whether the bytes
--     replace the whole stored value, whatever its size
--   retries: the wait for a counter request that does not fit
local opens, notes, refunds, stores, retries
if has_logs or has_counters then opens, notes, refunds, stores, retries = {}, {}, {}, {}, {} end
local expiries, expires_word, expire_command, expiry_from = {}, 'PXAT', 'PEXPIREAT', 0
if replay then expires_word, expire_command, expiry_from = 'PX', 'PEXPIRE', now - REPLAY_SLACK end
