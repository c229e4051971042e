-- Calls: the record, what follows from step() (gateway/model/call.py's table), and what a failure writes.
-- Rendered behind prelude.lua into every script that may settle a call.

local function call_key(id)
  return base .. ':call:' .. id
end

local function due_member(id)
  return 'c' .. sid() .. ':' .. id
end

local function load_call(id)
  local v = redis.call('HMGET', call_key(id), 'state', 'client', 'due', 'deadline', 'attempt', 'acked', 'refused',
    'digest', 'reason', 'settled', 'refused_text', 'hidden')
  if not v[1] then return nil end
  return { id = id, state = v[1], client = v[2], due = tonumber(v[3]), deadline = tonumber(v[4]),
    attempt = tonumber(v[5]), acked = v[6], refused = v[7], digest = v[8], reason = v[9], settled = v[10], refused_text = v[11],
    hidden = v[12] }
end

local function is_open(call)
  return call.state == 'dispatched' or call.state == 'acked'
end

-- The settled record stays for a week, without the arguments; nothing waits for it any more. Its lifetime was set when
-- it was made, its longest wait counted in.
local function settle(call, ...)
  redis.call('HSET', call_key(call.id), 'settled', int(now), 'args', '', ...)
  if call.hidden then redis.call('HDEL', call_key(call.id), 'log_args') end
  redis.call('HDEL', base .. ':open', call.id)
  redis.call('ZREM', due_key, due_member(call.id))
end

local function reason_of(call, event)
  local _, _, reason = step(call.state, event)
  return reason
end

local function fail(call, reason, detail)
  local begun = call.acked or call.refused or call.attempt > 1
  local outcome = begun and 'unknown' or 'not_started'
  local said = nil
  if call.refused and (reason == 'ack_timeout' or reason == 'result_timeout') then
    reason = 'result_timeout'
    detail = 'answer_refused'
    said = call.refused_text or nil
  end
  call.state, call.reason, call.settled = 'failed', reason, int(now)
  settle(call, 'state', 'failed', 'reason', reason, 'outcome', outcome, 'detail', detail or '')
  append('{"type":"client_tool_failed","client_id":"' .. call.client .. '","call_id":"' .. call.id ..
    '","reason":"' .. reason .. '","outcome":"' .. outcome .. '"' ..
    (detail and (',"detail":"' .. detail .. '"') or '') .. '}')
  append('{"type":"tool_result","call_id":"' .. call.id .. '","content":[{"type":"text","data":{"text":' ..
    (said or failure_text(reason, outcome)) .. '}}],"is_error":true}')
  tell_owner('F', call.id, reason, outcome, said)
end

-- The run is over: nobody waits for its calls any more.
local function fail_open_calls()
  for _, call_id in ipairs(redis.call('HKEYS', base .. ':open')) do
    local call = load_call(call_id)
    if call and is_open(call) then fail(call, reason_of(call, 'end'), nil) end
  end
end

-- What became of answers at the child: "id mark id mark".
local function mark_delivered(marks)
  for id, mark in string.gmatch(marks, '(%S+) (%S+)') do
    -- An answered call has the field. A record that is gone must not come back with this field alone.
    if redis.call('HSET', call_key(id), 'delivery', mark) == 1 and redis.call('HEXISTS', call_key(id), 'state') == 0 then
      redis.call('UNLINK', call_key(id))
    end
  end
end

-- The guards of step() that come before the table: a late event settles the call first.
local function settle_if_late(call)
  if is_open(call) and now >= call.due then fail(call, reason_of(call, 'due'), nil) end
end

-- Sets what the call waits for next.
local function wait_until(call, instant)
  call.due = math.min(instant, call.deadline)
  redis.call('ZADD', due_key, int(call.due), due_member(call.id))
  return int(call.due)
end

-- The dispatched event of a call, with arguments as given: clean for the log, or executing. `hidden` says that the
-- arguments are not those that the client executes: a reader asks for those while the call is open.
local function dispatched(call, tool, arguments, hidden)
  return '{"type":"client_tool_dispatched","client_id":"' .. call.client .. '","call_id":"' .. call.id ..
    '","tool":"' .. tool .. '","arguments":' .. arguments .. ',"attempt":' .. int(call.attempt) ..
    ',"deadline":"' .. rfc3339(call.deadline) .. '","ack_by":"' .. rfc3339(call.due) ..
    '","remaining_ms":' .. int(call.deadline - now) .. (hidden and ',"redacted":true}' or '}')
end

-- A client's place is gone: each of its open calls fails, but for those of idempotent tools when somebody takes the
-- place over by key (`kept`). Returns those. A session has at most sixteen open calls of a child, so this is bounded.
local function leave_calls(client_id, kept)
  local left = {}
  local open = redis.call('HGETALL', base .. ':open')
  for i = 1, #open, 2 do
    local call = open[i + 1] == client_id and load_call(open[i])
    if call and is_open(call) then
      settle_if_late(call)
      if is_open(call) then
        if kept and redis.call('HGET', call_key(call.id), 'idempotent') == '1' then
          left[#left + 1] = call
        else
          fail(call, reason_of(call, 'leave'), nil)
        end
      end
    end
  end
  return left
end

-- Calls of idempotent tools go to the registration that took their client's place over (bridge 7, "Redispatch").
local function retake_calls(calls, heir)
  for _, call in ipairs(calls) do
    local v = redis.call('HMGET', call_key(call.id), 'tool', 'args', 'log_args')
    call.client, call.attempt, call.state = heir, call.attempt + 1, (step(call.state, 'retake'))
    local due = wait_until(call, now + C.ack)
      redis.call('HDEL', call_key(call.id), 'acked', 'refused', 'refused_text')
    redis.call('HSET', base .. ':open', call.id, heir)
    append(dispatched(call, v[1], v[3] or v[2], v[3]), v[3] and dispatched(call, v[1], v[2]) or nil)
    redis.call('HSET', call_key(call.id), 'client', heir, 'attempt', int(call.attempt), 'state', call.state,
      'due', due, 'seq', int(session.seq))
  end
end
