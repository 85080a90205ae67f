-- Token bucket, leaky bucket and GCRA: a bucket of units that drain at a constant rate.
--
-- State: a record of a moment and the units used then, followed by the weight, the units per hit,
-- in 6 bytes. If the limit has changed since, the units are converted to the new weight.
--
-- An overdraft can leave more than 2^53 - 1 units. Such a debt is kept in `debts` as whole hits and
-- the units beyond them, fewer than one hit weighs; its units in `used` are 2^53 - 1. Its state is
-- the same 19 bytes, then the hits (7 bytes) and the units beyond them (6 bytes). This is exact
-- because weight * drain is at most 2^53 - 1: in `weight` milliseconds exactly `drain` hits drain.
-- If weight * drain is larger, units saturate at 2^53 - 1; a limit with such values has no
-- overdraft.
local WATER_BYTES, DEBT_BYTES = 19, 32
--@ read
if debts then debts[key] = nil end
if raw then
  local at, units, weighed = decode('<I6I7I6', raw)
  if #raw == WATER_BYTES then stored_ats[key] = at end
  if weighed ~= ask[WEIGHT] or #raw == DEBT_BYTES then
    --@ bucket.convert
  end
  if now > at then
    -- Over 2^53 the product is not exact, but more than the units can be.
    units, at = units - (now - at) * drain, now
    if units < 0 then units = 0 end
  end
  ats[key], used[key] = at, units
else
  ats[key], used[key] = now, 0
end
--@ convert
-- Converts the units to the limit's weight. A debt is drained until now, other units are not.
local weight, hits, rest = ask[WEIGHT], ceil_div(units, max(weighed, 1)), 0
if #raw == DEBT_BYTES then
  stored_ats[key] = nil
  hits, rest = decode('<I7I6', raw, WATER_BYTES + 1)
  if weighed ~= weight and rest > 0 then hits, rest = min(hits + 1, HITS_MAX), 0 end
end
units = hits * weight + rest
if units > HITS_MAX then
  units = HITS_MAX
  if weight * drain <= HITS_MAX then
    --@ bucket.drain_debt
  end
end
--@ drain_debt
if now > at then
  local elapsed = now - at
  local turns = floor(elapsed / weight)
  hits, rest = hits - turns * drain, rest - (elapsed - turns * weight) * drain
  if rest < 0 then
    local whole = ceil_div(-rest, weight)
    hits, rest = hits - whole, rest + whole * weight
  end
  at, units = now, 0
end
if hits >= 0 then
  --@ bucket.settle_debt
end
--@ settle_debt
-- A product over 2^53 is not exact, but over 2^53 all the same.
units = hits * weight + rest
if units > HITS_MAX then
  units = HITS_MAX
  if not debts then debts = {} end
  debts[key] = { hits, rest }
end
--@ owe
local weight, debt = ask[WEIGHT], debts and debts[key]
if weight * drain <= HITS_MAX then
  local hits, rest
  if debt then
    hits, rest = debt[1], debt[2]
  else
    hits = floor(used[key] / weight)
    if hits * weight > used[key] then hits = hits - 1 end
    rest = used[key] - hits * weight
  end
  if not debts then debts = {} end
  debts[key] = { min(hits + ask[HITS], HITS_MAX), rest }
end
--@ repay
local weight, hits, rest = ask[WEIGHT], debt[1] - ask[HITS], debt[2]
debts[key], units = nil, 0
if hits >= 0 then
  --@ bucket.settle_debt
end
--@ debt_time
local turns = floor(hits / drain)
if turns * drain > hits then turns = turns - 1 end
local part = ceil_div((hits - turns * drain) * ask[WEIGHT] + rest, drain)
local time = min(turns * ask[WEIGHT] + part, HITS_MAX)
--@ clear
ats[key] = now
--@ retry
local room = ask[CAPACITY] - ask[TESTED]
if debts and debts[key] then
  local hits, rest = debts[key][1] - room / ask[WEIGHT], debts[key][2]
  --@ bucket.debt_time
  wait = max(1, time)
else
  wait = max(1, ceil_div(max(0, units - room), drain))
end
--@ report
if debts and debts[key] then
  local hits, rest = debts[key][1], debts[key][2]
  --@ bucket.debt_time
  reset = time
else
  -- The same as ceil_div, without the cost of a call.
  reset = units / drain
  reset = reset - reset % 1
  if reset * drain < units then reset = reset + 1 end
end
resets[key] = reset
if left > 0 then
  -- The same, rounded down.
  local weight = ask[WEIGHT]
  local quotient = left / weight
  quotient = quotient - quotient % 1
  if quotient * weight > left then left = quotient - 1 else left = quotient end
end
--@ write
-- A key lives for one period (for four periods, up to a minute, if the period is shorter than a
-- minute), and at least until the bucket is empty. That time is divided into quarters. Only the
-- first write in each quarter sets the expiry; later ones in the quarter keep it, unless their
-- units last longer. This holds whatever the limit was at the earlier write, because it depends
-- only on the period, which is part of the key.
local life, empty_at = ask[PERIOD], at + resets[key] + EXPIRY_SLACK
if life < 60000 then life = min(4 * life, 60000) end
local since = at - at % (life / 4)
raw = pack('<I6I7I6', at, used[key], ask[WEIGHT])
if debts and debts[key] then raw = raw .. pack('<I7I6', debts[key][1], debts[key][2]) end
lasts = stored and stored >= since and stored < since + life / 4 and empty_at <= since + life
expires = at + life
if expires < empty_at then expires = empty_at end
