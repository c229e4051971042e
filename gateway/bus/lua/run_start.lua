-- The owner takes the next input. ARGV: epoch. Returns the queue entry, or '' when none waits or one is active.
if not open_session() then return redis.error_reply('TR not_found') end
if session.epoch ~= ARGV[1] then return redis.error_reply('TR fenced') end
if redis.call('HGET', base, 'run') then return '' end
local entry = redis.call('LPOP', base .. ':runs')
if not entry then return '' end
local run_id = string.sub(entry, 1, 36)
append('{"type":"run_started","run_id":"' .. run_id .. '"}')
commit('run', run_id)
return entry
