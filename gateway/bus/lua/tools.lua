-- A client replaces its list. ARGV: client_id, stored record's tools, client_tools_updated payload.
-- The revision changes only when the list does. Returns the event.
if not open_session() then return redis.error_reply('TR not_found') end
local tools = redis.call('HGET', client_key(ARGV[1]), 'tools')
if not tools then return redis.error_reply('TR not_found') end
local changed = tools ~= ARGV[2]
if changed then
  redis.call('HINCRBY', client_key(ARGV[1]), 'revision', 1)
  redis.call('HSET', client_key(ARGV[1]), 'tools', ARGV[2])
end
local event = append(ARGV[3])
commit()
if changed then tell_owner('C') end
return event
