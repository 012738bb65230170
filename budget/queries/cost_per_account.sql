-- Who paid how much for what. Accounts pay for their calls; the house pays for what was measured above a hold and for faults
-- of ours (overruns), for qualifying tasks, for calibrations, and for the referee's own work under a lease.
-- Seconds are summed in whole nanoseconds, as the book keeps them.
WITH paid AS (
  SELECT account_id, CASE kind WHEN 'settle' THEN 'calls' ELSE 'overruns' END AS paid_for, gpu_s, cpu_s, work_s
  FROM events WHERE kind IN ('settle', 'overrun')
  UNION ALL SELECT 'house', 'qualifications', gpu_s, cpu_s, 0.0 FROM qualifications
  UNION ALL SELECT 'house', 'calibrations', gpu_s, cpu_s, 0.0 FROM calibrations
  UNION ALL
  SELECT 'house', 'referee', CASE r.device_kind WHEN 'cuda' THEN s.house_s ELSE 0.0 END,
    CASE r.device_kind WHEN 'cuda' THEN 0.0 ELSE s.house_s END, 0.0
  FROM results s JOIN runs r ON r.run_id = s.run_id WHERE s.house_s > 0
)
SELECT
  p.account_id, p.paid_for, count(*) AS entries,
  sum(CAST(round(p.gpu_s * 1e9) AS INTEGER)) / 1e9 AS gpu_s,
  sum(CAST(round(p.cpu_s * 1e9) AS INTEGER)) / 1e9 AS cpu_s,
  sum(CAST(round(p.work_s * 1e9) AS INTEGER)) / 1e9 AS work_s,
  a.device_s_cap
FROM paid p
LEFT JOIN accounts a ON a.account_id = p.account_id
GROUP BY p.account_id, p.paid_for;
