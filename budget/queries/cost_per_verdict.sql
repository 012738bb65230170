-- What each verdict cost an account, rung by rung: charged calls and seconds, and their share of all that it was charged.
-- `outcome` is the verdict, or why nothing was judged: cancelled, purse_ended. Seconds are summed in whole nanoseconds.
WITH summed AS (
  SELECT e.account_id, e.rung, ifnull(r.verdict, e.reason) AS outcome, count(1) AS charges, sum(e.calls) AS calls,
    count(DISTINCT e.candidate_id) AS candidates,
    sum(CAST(round(e.gpu_s * 1e9) AS BIGINT)) AS gpu_ns, sum(CAST(round(e.cpu_s * 1e9) AS BIGINT)) AS cpu_ns,
    sum(CAST(round(e.work_s * 1e9) AS BIGINT)) AS work_ns
  FROM events e LEFT JOIN results r ON r.event_seq = e.seq
  WHERE e.kind = 'settle' GROUP BY e.account_id, e.rung, outcome
)
SELECT
  account_id, rung, outcome, charges, calls, candidates, gpu_ns / 1e9 AS gpu_s, cpu_ns / 1e9 AS cpu_s,
  work_ns / 1e9 AS work_s,
  (gpu_ns + cpu_ns) * 1.0 / nullif(sum(gpu_ns + cpu_ns) OVER (PARTITION BY account_id), 0) AS device_share
FROM summed;
