-- Decides requests over all their counters, atomically: each request's limits are all tested
-- first, then all that admit take, or none. The same arithmetic stands in src/algorithm; every
-- number is a whole one below 2^53, which doubles hold exactly.
--
-- KEYS: the counters of all requests, each once. First those that are read and written whole,
--   then the logs.
-- ARGV[1]: the moment in milliseconds since the epoch in a replay; '' for this server's clock.
-- ARGV[2]: how many of KEYS are read and written whole.
-- ARGV[3] and on: a request each, a row of ROW for each of its counters:
--   KEY index into KEYS · ALGORITHM · MODE · SHADOW 0 or 1 · OVERDRAFT 0 or 1 · HITS (0 asks)
--   LIMIT hits a period, of a bucket its burst · PERIOD milliseconds
--   A: of a counter its sub-windows; of a bucket the units that drain a millisecond
--   B: of a counter a sub-window's milliseconds; of a bucket the units a hit weighs
-- Reply: a string for each request, a row of STATUS for each of its counters:
--   within the limit 0 or 1 · remaining · reset_after · retry_after (0: none, or never) · delay,
--   times in milliseconds.
local ROW, ROW_BYTES = '<I2I1I1I1I1I7I7I6I7I6', 39
local STATUS = '<I1I7I7I7I7'
local KEY, ALGORITHM, MODE, SHADOW, OVERDRAFT, HITS, LIMIT, PERIOD, A, B = 1, 2, 3, 4, 5, 6, 7, 8, 9, 10
local FIXED_WINDOW, LOG, COUNTER, WEIGHTED_COUNTER, BUCKET, LEAKY_BUCKET = 1, 2, 3, 4, 5, 6
local TAKE, REFUND = 0, 2
-- A key lives this much longer than it matters, so that no rounding of expiry can drop it early.
local EXPIRY_SLACK = 1000
-- A replay's clock may run slower than this server's: its keys live longer, and it removes them.
local REPLAY_SLACK = 3600000
