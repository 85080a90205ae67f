-- Decides each request: tests all counters, then takes hits from all or from none.
local out, size, row = {}, 0, 1
while row <= plan_size do
  -- If a counter's limit differs from that of an earlier request in this run, all changed states
  -- are written first, as if the remaining requests were a separate run.
  local changed = false
  while row <= plan_size do
    local first, last = row + 1, row + 2 * plan[row]
    local rejected, takes_nothing, status = false, false, size
    for at = first, last, 2 do
      local key, ask = plan[at], asks[plan[at + 1]]
      local before = opened[key]
      if before ~= ask then
        local algorithm, drain, raw = ask[ALGORITHM], ask[DRAIN], values[key]
        local same = before and algorithm == before[ALGORITHM]
          and ask[A] == before[A] and ask[B] == before[B]
        if not same then
          if moved[key] then
            changed = true
            break
          elseif drain then
            --@ bucket.read
          elseif algorithm == FIXED_WINDOW then
            --@ fixed_window.read
          else
            opens[algorithm](key, ask)
          end
        end
        opened[key] = ask
      end
      if ask[TESTED] <= ask[CAPACITY] - used[key] or ask[MODE] == REFUND then
        out[status + 1] = 1
      else
        out[status + 1] = 0
        if ask[ROLE] == ENFORCED then
          rejected = true
          takes_nothing = takes_nothing or ask[EXCESS] ~= OVERDRAFT
        end
      end
      status = status + STATUS_SIZE
    end
    if changed then break end
    if has_quotas then
      --@ quota.judge
    end
    for at = first, last, 2 do
      local key, ask = plan[at], asks[plan[at + 1]]
      local algorithm, drain, mode = ask[ALGORITHM], ask[DRAIN], ask[MODE]
      local within, units, wait = out[size + 1] == 1, used[key], 0
      if mode == TAKE and ask[HITS] > 0 then
        local passes = within and not rejected
        if passes and algorithm == LEAKY_BUCKET then wait = ceil_div(units, drain) end
        if passes or ask[EXCESS] == OVERDRAFT and not takes_nothing or ask[EXCESS] == COUNTED then
          if not drain and algorithm ~= FIXED_WINDOW then notes[algorithm](key, ask) end
          units = units + ask[TAKEN]
          if units > HITS_MAX then
            if drain then
              --@ bucket.owe
            end
            units = HITS_MAX
          end
          used[key], moved[key] = units, ask
        end
      elseif mode == REFUND and ask[HITS] > 0 and units > 0
        and (not rejected or ask[EXCESS] == COUNTED) then
        if not drain and algorithm ~= FIXED_WINDOW then
          refunds[algorithm](key, ask)
          units = used[key]
        else
          local debt = drain and debts and debts[key]
          if debt then
            --@ bucket.repay
          else
            units = max(0, units - ask[TAKEN])
          end
          if units == 0 then
            if drain then
              --@ bucket.clear
            else
              --@ fixed_window.clear
            end
          end
        end
        used[key], moved[key] = units, ask
        if stored_ats[key] then stored_ats[key] = -1 end
      end
      local left, reset = ask[CAPACITY] - units, nil
      if left < 0 then left = 0 end
      if drain then
        --@ bucket.report
      else
        reset = resets[key]
      end
      if not within and ask[TESTED] <= ask[CAPACITY] then
        if drain then
          --@ bucket.retry
        elseif algorithm == FIXED_WINDOW then
          wait = reset
        else
          wait = retries[algorithm](key, ask)
        end
      end
      out[size + 2], out[size + 3], out[size + 4] = left, reset, wait
      size = size + STATUS_SIZE
    end
    row = last + 1
  end
  --@ write.moved
end
if size <= VALUES_MAX then return pack('<' .. rep(STATUS, size / STATUS_SIZE), spread(out)) end
local replies = {}
for at = 1, size, STATUS_SIZE do
  replies[#replies + 1] = pack('<' .. STATUS, spread(out, at, at + STATUS_SIZE - 1))
end
return table.concat(replies)
