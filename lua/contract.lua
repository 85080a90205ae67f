-- Decides requests over all their counters, in order and each atomically: all limits of a request
-- are tested first, then hits are taken from all counters or from none. src/algorithm has the same
-- arithmetic in Rust. Every number is a whole number below 2^53, which doubles represent exactly.
--
-- Redis creates the functions, tables and captured variables of a script again in every run. So
-- those that only some runs need are created only in these runs, and algorithms whose state is one
-- amount have sections instead of functions: the build inserts the section `bucket.read` of
-- bucket.lua at the line of decide.lua with its name after `--@`. It also inserts constants (names
-- in capitals) where they are used.
--
-- To add an algorithm, add its code below, in ScriptArguments of its file in src/algorithm and, if
-- it has a function or a section, in its own file here and in build.rs.
--   A state of several records, as of the logs: the file fills `opens`, `notes`, `refunds`, `stores`
--   and `retries` of read.lua, which has the condition for creating the functions. decide.lua and
--   write.lua need no change.
--   A state of one amount, as of the windows: the file has sections, which decide.lua names where it
--   reads, clears and reports a state, and write.lua where it writes one. A table of functions was
--   rejected: a call per row and the creation of a function per run cost more than a comparison.
--
-- A counter's limit may change within a run. Its algorithm and period may not: they are in its key.
--
-- KEYS: the counters of all requests, each once. First those that are read and written whole, then
--   the logs.
-- ARGV[1]: the moment of a replay in milliseconds since the epoch; '' for the clock of this server.
-- ARGV[2]: the number of KEYS that are read and written whole.
-- ARGV[3]: the distinct counter requests without their keys, each in the format ASK:
--   ALGORITHM · MODE
--   ROLE, the effect of hits that do not fit: ENFORCED rejects the request; SHADOW only reports;
--     from QUOTA on it is the number of a quota group, and all groups together reject the request
--   EXCESS, the treatment of hits that do not fit: 0 refuses them; OVERDRAFT tests one hit and
--     takes all; COUNTED takes and refunds them even if the request is rejected
--   HITS (0: only tested, except for a refund, which is never rejected)
--   LIMIT hits per period, for a bucket its burst · PERIOD milliseconds
--   A: for a counter its sub-windows; for a bucket the units that drain per millisecond
--   B: for a counter the milliseconds per sub-window; for a bucket the units per hit
-- ARGV[4]: the requests, in numbers of 2 bytes: the number of rows, then for each row the index
--   into KEYS and the index into ARGV[3], both from 1.
-- Reply: one string with a STATUS for each row, in the order of the rows:
--   within the limit (0 or 1) · remaining · reset_after · delay if within the limit, otherwise
--   retry_after (0: never). Times are in milliseconds.
local ASK, ASK_BYTES = '<I1I1I1I1I7I7I6I7I6', 37
local ALGORITHM, MODE, ROLE, EXCESS, HITS, LIMIT, PERIOD, A, B = 1, 2, 3, 4, 5, 6, 7, 8, 9
local STATUS, STATUS_SIZE = 'I1I7I7I7', 4
local FIXED_WINDOW, LOG, COUNTER, WEIGHTED_COUNTER, BUCKET, LEAKY_BUCKET = 1, 2, 3, 4, 5, 6
local TAKE, REFUND = 0, 2
local ENFORCED, QUOTA = 0, 2
local OVERDRAFT, COUNTED = 1, 2
-- Values passed to one call of struct or redis, well below the limit. More need further calls.
local VALUES_MAX = 4000
-- Milliseconds added to a key's expiry, so that no rounding can drop it too early.
local EXPIRY_SLACK = 1000
-- The clock of a replay may be slower than this server's, so its keys live longer. It removes them.
local REPLAY_SLACK = 3600000
