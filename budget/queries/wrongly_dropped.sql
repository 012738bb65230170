-- Candidates that the cheap rung or the rule turned away, and that a precise timing found faster than the baseline all the
-- same: against the rule, in a later turn, or as the same source in another run on the same task and environment.
-- `beat_the_best` is 1 where it is also faster than the best settled candidate of the run that dropped it.
WITH slower AS (
  SELECT candidate_id, environment_id, max(event_seq) AS seq
  FROM results WHERE rung = 'quick' AND verdict = 'clearly_slower' GROUP BY candidate_id, environment_id
),
refused AS (
  SELECT candidate_id, environment_id, max(seq) AS seq
  FROM events WHERE kind = 'refuse' AND refusal_kind = 'rule' GROUP BY candidate_id, environment_id
),
best AS (
  SELECT run_id, environment_id, candidate_id, precise_ratio FROM leaderboard
  WHERE place = 1 AND precise_verdict IN ('faster', 'same', 'slower')
)
SELECT
  c.run_id, c.candidate_id, p.environment_id, s.seq AS clearly_slower_seq, f.seq AS refused_seq,
  p.run_id AS proven_run_id, p.candidate_id AS proven_candidate_id, max(p.event_seq) AS proven_seq,
  p.ratio, p.ratio_low, p.ratio_high,
  b.candidate_id = c.candidate_id OR p.ratio > ifnull(b.precise_ratio, 0.0) AS beat_the_best
FROM candidates c
JOIN runs r ON r.run_id = c.run_id
JOIN results p ON p.source_sha256 = c.source_sha256 AND p.task_digest = r.task_digest AND p.rung = 'precise'
  AND p.verdict = 'faster'
LEFT JOIN slower s ON s.candidate_id = c.candidate_id AND s.environment_id = p.environment_id
LEFT JOIN refused f ON f.candidate_id = c.candidate_id AND f.environment_id = p.environment_id
LEFT JOIN best b ON b.run_id = c.run_id AND b.environment_id = p.environment_id
WHERE s.seq IS NOT NULL OR f.seq IS NOT NULL
GROUP BY c.run_id, c.candidate_id, p.environment_id;
