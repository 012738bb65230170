-- Did the cheap look agree with the dear one? Candidates with a ratio from both, in one environment.
WITH latest AS (
  SELECT run_id, candidate_id, environment_id, rung, verdict, ratio, ratio_low, ratio_high, max(event_seq) AS event_seq
  FROM results WHERE rung IN ('quick', 'precise') GROUP BY run_id, candidate_id, environment_id, rung
)
SELECT
  q.run_id, q.candidate_id, q.environment_id, q.verdict AS quick_verdict, p.verdict AS precise_verdict,
  q.ratio AS quick_ratio, q.ratio_low AS quick_low, q.ratio_high AS quick_high,
  p.ratio AS precise_ratio, p.ratio_low AS precise_low, p.ratio_high AS precise_high,
  p.ratio / q.ratio AS precise_over_quick,
  p.ratio BETWEEN q.ratio_low AND q.ratio_high AS within_quick_interval,
  (q.verdict = 'maybe_faster' AND p.verdict = 'slower') OR (q.verdict = 'clearly_slower' AND p.verdict = 'faster')
    AS overturned
FROM latest q
JOIN latest p ON p.run_id = q.run_id AND p.candidate_id = q.candidate_id AND p.environment_id = q.environment_id
WHERE q.rung = 'quick' AND p.rung = 'precise' AND q.ratio IS NOT NULL AND p.ratio IS NOT NULL;
