-- Decides requests over all their counters, in their order and each atomically: a request's limits
-- are all tested first, then all that admit take, or none. The same arithmetic stands in
-- src/algorithm; every number is a whole one below 2^53, which doubles hold exactly.
--
-- Redis makes the functions, tables and captured variables of a script anew in every run. So what only
-- some runs need is made by those, and algorithms whose state is one amount have sections and no
-- functions: the build puts `bucket.read` of bucket.lua where decide.lua names it after `--@`, and
-- constants (names in capitals) where they are used.
--
-- To add an algorithm: its code below, in ScriptArguments of its file in src/algorithm and, if it has
-- a function or a section, its own file here and in build.rs.
--   A state of several records, as the logs': the file fills `opens`, `notes`, `refunds`, `stores` and
--   `retries` of read.lua, which has the condition on which the functions are made. decide.lua and
--   write.lua need no change.
--   A state of one amount, as the windows': sections, which decide.lua names where it reads, clears and
--   reports a state, and write.lua where it writes one. They are no table, because a call and the
--   creation of a function for every row or run cost more than a comparison.
--
-- A counter's limit may change within a run; what its key names, algorithm and period, may not.
--
-- KEYS: the counters of all requests, each once. First those that are read and written whole,
--   then the logs.
-- ARGV[1]: the moment in milliseconds since the epoch in a replay; '' for this server's clock.
-- ARGV[2]: how many of KEYS are read and written whole.
-- ARGV[3]: what is asked of counters, each different ASK once:
--   ALGORITHM · MODE
--   ROLE where the hits do not fit: ENFORCED rejects the request, SHADOW reports, from QUOTA on the
--     numbers of groups, all of which together reject it
--   EXCESS, the hits that do not fit: 0 are refused, OVERDRAFT tests one and takes all, COUNTED takes
--     them, and gives hits back, though the request is rejected
--   HITS (0 asks, but for a refund, which is never rejected)
--   LIMIT hits a period, of a bucket its burst · PERIOD milliseconds
--   A: of a counter its sub-windows; of a bucket the units that drain a millisecond
--   B: of a counter a sub-window's milliseconds; of a bucket the units a hit weighs
-- ARGV[4]: the requests, in numbers of 2 bytes: how many rows it has, then for each row the index
--   into KEYS and the index into ARGV[3], both from 1.
-- Reply: one string with a STATUS for each row, in the order of the rows:
--   within the limit 0 or 1 · remaining · reset_after · within: delay, else retry_after
--   (0: never), times in milliseconds.
local ASK, ASK_BYTES = '<I1I1I1I1I7I7I6I7I6', 37
local ALGORITHM, MODE, ROLE, EXCESS, HITS, LIMIT, PERIOD, A, B = 1, 2, 3, 4, 5, 6, 7, 8, 9
local STATUS, STATUS_SIZE = 'I1I7I7I7', 4
local FIXED_WINDOW, LOG, COUNTER, WEIGHTED_COUNTER, BUCKET, LEAKY_BUCKET = 1, 2, 3, 4, 5, 6
local TAKE, REFUND = 0, 2
local ENFORCED, QUOTA = 0, 2
local OVERDRAFT, COUNTED = 1, 2
-- What a call of struct or redis can be given, with room to spare; the rest goes in further calls.
local VALUES_MAX = 4000
-- A key lives this much longer than it matters, so that no rounding of expiry can drop it early.
local EXPIRY_SLACK = 1000
-- A replay's clock may run slower than this server's: its keys live longer, and it removes them.
local REPLAY_SLACK = 3600000
