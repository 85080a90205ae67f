-- Token bucket, leaky bucket, GCRA: water that drains. State: a record, the moment and the units
-- of water then, and in 6 bytes the units that a hit weighed: a limit changed since converts.
--@ read
if raw then
  local at, units, weighed = decode('<I6I7I6', raw)
  if #raw == 19 then stored_ats[key] = at end
  if weighed ~= ask[WEIGHT] then
    units = min(ceil_div(units, max(weighed, 1)) * ask[WEIGHT], HITS_MAX)
  end
  if now > at then
    -- Over 2^53 it is not exact, but more than any water.
    units, at = units - (now - at) * drain, now
    if units < 0 then units = 0 end
  end
  ats[key], used[key] = at, units
else
  ats[key], used[key] = now, 0
end
--@ clear
ats[key] = now
--@ retry
wait = max(1, ceil_div(max(0, units - (ask[CAPACITY] - ask[TESTED])), drain))
--@ report
-- As ceil_div, without a call.
reset = units / drain
reset = reset - reset % 1
if reset * drain < units then reset = reset + 1 end
resets[key] = reset
if left > 0 then
  -- The same, but down.
  local weight = ask[WEIGHT]
  local quotient = left / weight
  quotient = quotient - quotient % 1
  if quotient * weight > left then left = quotient - 1 else left = quotient end
end
--@ write
-- A key lives for a period from its last moment, if that is short for some of them, and as long as
-- it matters. So the first write in each quarter of that time says when it expires for those that
-- follow it there, unless their water lasts longer. This holds whatever the limit was then:
-- nothing but the period, which the key names, is asked of those who wrote before.
local life, empty_at = ask[PERIOD], at + resets[key] + EXPIRY_SLACK
if life < 60000 then life = min(4 * life, 60000) end
local since = at - at % (life / 4)
raw = pack('<I6I7I6', at, used[key], ask[WEIGHT])
lasts = stored and stored >= since and stored < since + life / 4 and empty_at <= since + life
expires = at + life
if expires < empty_at then expires = empty_at end
