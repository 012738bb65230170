-- How many candidates of a run entered each rung, passed it or failed it (by their latest result), and how many were
-- refused at its door; replays count as entries, and cost nothing. Calls and seconds are all that were charged, also for
-- work that was cancelled or that the purse could not carry on; seconds are summed in whole nanoseconds.
WITH latest AS (
  SELECT run_id, candidate_id, rung, verdict, max(event_seq) AS event_seq
  FROM results GROUP BY run_id, candidate_id, rung
),
entered AS (
  SELECT run_id, rung, count(1) AS entered,
    sum(verdict IN ('built', 'correct', 'maybe_faster', 'undecided', 'clearly_slower',
      'faster', 'same', 'slower', 'ambiguous', 'diagnosed', 'no_finding')) AS passed
  FROM latest GROUP BY run_id, rung
),
spent AS (
  SELECT run_id, rung, sum(calls) AS calls, sum(CAST(round((gpu_s + cpu_s) * 1e9) AS BIGINT)) / 1e9 AS device_s
  FROM events WHERE kind = 'settle' GROUP BY run_id, rung
),
replayed AS (  -- answers from the book: each is a note with the rung that it was for
  SELECT run_id, rung, count(1) AS replays FROM events WHERE kind = 'note' AND rung IS NOT NULL GROUP BY run_id, rung
),
refused AS (
  SELECT run_id, rung, count(1) AS refusals, count(DISTINCT candidate_id) AS refused
  FROM events WHERE kind = 'refuse' AND rung IS NOT NULL GROUP BY run_id, rung
),
rungs (rung, step) AS (VALUES ('compile', 1), ('check', 2), ('quick', 3), ('precise', 4), ('profile', 5))
SELECT
  r.run_id, g.rung, g.step, ifnull(e.entered, 0) AS entered, ifnull(e.passed, 0) AS passed,
  ifnull(e.entered - e.passed, 0) AS failed, ifnull(f.refused, 0) AS refused, ifnull(f.refusals, 0) AS refusals,
  ifnull(s.calls, 0) AS calls, ifnull(p.replays, 0) AS replays, ifnull(s.device_s, 0.0) AS device_s
FROM runs r
CROSS JOIN rungs g
LEFT JOIN entered e ON e.run_id = r.run_id AND e.rung = g.rung
LEFT JOIN spent s ON s.run_id = r.run_id AND s.rung = g.rung
LEFT JOIN replayed p ON p.run_id = r.run_id AND p.rung = g.rung
LEFT JOIN refused f ON f.run_id = r.run_id AND f.rung = g.rung;
