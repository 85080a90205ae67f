-- Fixed windows of one period, aligned to the epoch. State: one record, the window's start and
-- count.
--@ read
local period = ask[PERIOD]
local start, count = now - now % period, 0
local left = start + period - now
if raw then
  local at, amount = decode(RECORD, raw)
  if #raw == RECORD_BYTES then stored_ats[key] = at end
  if at >= start then
    start, count = at, amount
    -- If the clock has stepped back, the stored window may not have begun yet.
    if at > now then left = period end
  end
end
ats[key], used[key], resets[key] = start, count, left
--@ clear
ats[key] = now - now % ask[PERIOD]
resets[key] = ats[key] + ask[PERIOD] - now
--@ write
raw, lasts, expires = pack(RECORD, at, used[key]), stored == at, at + ask[PERIOD] + EXPIRY_SLACK
