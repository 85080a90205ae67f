-- Exact whole numbers below 2^53, and the record that every state is made of.
local call, floor, min, max = redis.call, math.floor, math.min, math.max
local pack, decode, spread, rep = struct.pack, struct.unpack, unpack, string.rep
local HITS_MAX = 9007199254740991
-- A moment in 6 bytes and an amount in 7.
local RECORD, RECORD_BYTES = '<I6I7', 13
-- A double's quotient can round up to the next whole number, never further: look once.
local function ceil_div(a, b)
  local quotient = floor(a / b)
  if quotient * b < a then return quotient + 1 end
  return quotient
end
