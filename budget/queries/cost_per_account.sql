-- What each account paid for its calls, and what the house paid beside them: what was measured above a hold and faults of ours
-- (overruns), qualifying tasks, calibrations, and the referee's own work under a lease. `device_s` counts GPU-seconds and
-- CPU-seconds alike; `lost_device_s` is the part of the overruns that is estimated, because the server was gone before it
-- measured; `all_device_s` is all that was spent. Seconds are summed in whole nanoseconds, as the book keeps them.
WITH paid AS (
  SELECT account_id,
    sum(CASE kind WHEN 'settle' THEN 1 ELSE 0 END) AS charges,
    sum(CASE kind WHEN 'settle' THEN CAST(round((gpu_s + cpu_s) * 1e9) AS BIGINT) ELSE 0 END) AS calls_ns,
    sum(CASE kind WHEN 'settle' THEN CAST(round(work_s * 1e9) AS BIGINT) ELSE 0 END) AS work_ns,
    sum(CASE kind WHEN 'overrun' THEN CAST(round((gpu_s + cpu_s) * 1e9) AS BIGINT) ELSE 0 END) AS overrun_ns,
    sum(CASE WHEN kind = 'overrun' AND reason LIKE 'owner_lost%'
      THEN CAST(round((gpu_s + cpu_s) * 1e9) AS BIGINT) ELSE 0 END) AS lost_ns
  FROM events GROUP BY account_id
),
house AS (
  SELECT 'house' AS account_id,
    (SELECT sum(CAST(round((gpu_s + cpu_s) * 1e9) AS BIGINT)) FROM qualifications) AS qualifying_ns,
    (SELECT sum(CAST(round((gpu_s + cpu_s) * 1e9) AS BIGINT)) FROM calibrations) AS calibrating_ns,
    (SELECT sum(CAST(round(house_s * 1e9) AS BIGINT)) FROM results) AS referee_ns
)
SELECT
  a.account_id, ifnull(p.charges, 0) AS charges, ifnull(p.calls_ns, 0) / 1e9 AS calls_device_s,
  ifnull(p.work_ns, 0) / 1e9 AS calls_work_s, ifnull(p.overrun_ns, 0) / 1e9 AS overruns_device_s,
  ifnull(h.qualifying_ns, 0) / 1e9 AS qualifying_device_s, ifnull(h.calibrating_ns, 0) / 1e9 AS calibrating_device_s,
  ifnull(h.referee_ns, 0) / 1e9 AS referee_device_s, ifnull(p.lost_ns, 0) / 1e9 AS lost_device_s,
  (ifnull(p.calls_ns, 0) + ifnull(p.overrun_ns, 0) + ifnull(h.qualifying_ns, 0) + ifnull(h.calibrating_ns, 0)
    + ifnull(h.referee_ns, 0)) / 1e9 AS all_device_s, a.device_s_cap
FROM accounts a
LEFT JOIN paid p ON p.account_id = a.account_id
LEFT JOIN house h ON h.account_id = a.account_id;
