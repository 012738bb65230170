-- Timed candidates of a run, best first, for each environment apart: settled precise ratios, then quick ones, then
-- candidates that failed when they were measured precisely. `device_s` is all that the candidate was charged, on every rung,
-- with and without a result.
WITH latest AS (
  SELECT run_id, candidate_id, environment_id, rung, verdict, ratio, ratio_low, ratio_high, max(event_seq) AS event_seq
  FROM results WHERE rung IN ('quick', 'precise') GROUP BY run_id, candidate_id, environment_id, rung
),
timed AS (
  SELECT run_id, candidate_id, environment_id,
    max(CASE rung WHEN 'quick' THEN verdict END) AS quick_verdict,
    max(CASE rung WHEN 'quick' THEN ratio END) AS quick_ratio,
    max(CASE rung WHEN 'quick' THEN ratio_low END) AS quick_low,
    max(CASE rung WHEN 'quick' THEN ratio_high END) AS quick_high,
    max(CASE rung WHEN 'precise' THEN verdict END) AS precise_verdict,
    max(CASE rung WHEN 'precise' THEN ratio END) AS precise_ratio,
    max(CASE rung WHEN 'precise' THEN ratio_low END) AS precise_low,
    max(CASE rung WHEN 'precise' THEN ratio_high END) AS precise_high
  FROM latest GROUP BY run_id, candidate_id, environment_id
),
spent AS (
  SELECT run_id, candidate_id, sum(CAST(round((gpu_s + cpu_s) * 1e9) AS BIGINT)) / 1e9 AS device_s
  FROM events WHERE kind = 'settle' GROUP BY run_id, candidate_id
)
SELECT
  t.run_id, t.environment_id,
  row_number() OVER (
    PARTITION BY t.run_id, t.environment_id
    ORDER BY
      CASE WHEN t.precise_verdict IN ('faster', 'same', 'slower') THEN 0
        WHEN ifnull(t.precise_verdict, '') IN ('', 'ambiguous', 'no_sample_left') THEN 1 ELSE 2 END,
      t.precise_ratio DESC NULLS LAST, t.quick_ratio DESC NULLS LAST, c.number
  ) AS place,
  t.candidate_id, c.parent_id, c.language, c.note,
  t.precise_verdict, t.precise_ratio, t.precise_low, t.precise_high,
  t.quick_verdict, t.quick_ratio, t.quick_low, t.quick_high,
  ifnull(s.device_s, 0.0) AS device_s
FROM timed t
JOIN candidates c ON c.candidate_id = t.candidate_id
LEFT JOIN spent s ON s.run_id = t.run_id AND s.candidate_id = t.candidate_id;
