-- The owner ends a call. ARGV: epoch, op, call_id, event of the table ('end', or 'timeout' when the child's own clock
-- ran out), detail ('' = none). Returns 1 when the call was open.
if not open_session() then return redis.error_reply('TR not_found') end
local fenced = fence(ARGV[1], ARGV[2])
if fenced and fenced ~= 'repeated' then return fenced end
local call = load_call(ARGV[3])
local open = call and is_open(call)
if open then fail(call, reason_of(call, ARGV[4]), ARGV[5] ~= '' and ARGV[5] or nil) end
commit()
return open and 1 or 0
