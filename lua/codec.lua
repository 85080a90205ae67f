-- Shortcuts for library functions, the record that states consist of, and division that is exact
-- for whole numbers below 2^53.
local call, floor, min, max = redis.call, math.floor, math.min, math.max
local pack, decode, spread, rep = struct.pack, struct.unpack, unpack, string.rep
local HITS_MAX = 9007199254740991
-- A record: a moment in 6 bytes and an amount in 7.
local RECORD, RECORD_BYTES = '<I6I7', 13
-- The quotient of two doubles can round up to the next whole number, never further.
local function ceil_div(a, b)
  local quotient = floor(a / b)
  if quotient * b < a then return quotient + 1 end
  return quotient
end
