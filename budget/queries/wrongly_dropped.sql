-- Candidates that the cheap rung or the rule turned away, and that a precise timing found faster than the baseline all the
-- same: against the rule, in a later turn, or as the same source in another run on the same task and environment.
-- `beat_the_best` is 1 where it is also faster than the best settled candidate of the run that dropped it.
WITH dropped AS (
  SELECT run_id, candidate_id, environment_id, 'clearly_slower' AS dropped_by, max(event_seq) AS dropped_seq
  FROM results WHERE rung = 'quick' AND verdict = 'clearly_slower' GROUP BY run_id, candidate_id, environment_id
  UNION ALL
  SELECT run_id, candidate_id, environment_id, 'rule', max(seq)
  FROM events WHERE kind = 'refuse' AND refusal_kind = 'rule' GROUP BY run_id, candidate_id, environment_id
),
best AS (
  SELECT run_id, environment_id, candidate_id, precise_ratio FROM leaderboard
  WHERE place = 1 AND precise_verdict IN ('faster', 'same', 'slower')
)
SELECT
  d.run_id, d.candidate_id, d.environment_id, d.dropped_by, d.dropped_seq,
  p.run_id AS proven_run_id, p.candidate_id AS proven_candidate_id, max(p.event_seq) AS proven_seq,
  p.ratio, p.ratio_low, p.ratio_high,
  b.candidate_id = d.candidate_id OR p.ratio > ifnull(b.precise_ratio, 0.0) AS beat_the_best
FROM dropped d
JOIN candidates c ON c.candidate_id = d.candidate_id
JOIN runs r ON r.run_id = d.run_id
JOIN results p ON p.source_sha256 = c.source_sha256 AND p.task_digest = r.task_digest AND p.rung = 'precise'
  AND p.environment_id = d.environment_id AND p.verdict = 'faster'
LEFT JOIN best b ON b.run_id = d.run_id AND b.environment_id = d.environment_id
GROUP BY d.run_id, d.candidate_id, d.environment_id, d.dropped_by;
