-- How often the cheap rung ranked two candidates as the dear one did, run by run and environment by environment.
-- `certain_pairs` are those whose precise intervals do not overlap: there the dear rung itself is sure of the order.
-- A tie at quick ranks nothing, so it does not agree. Shares are NULL where there is no pair.
WITH timed AS (SELECT * FROM quick_vs_precise WHERE precise_verdict IN ('faster', 'same', 'slower')),
pairs AS (
  SELECT a.run_id, a.environment_id,
    (a.quick_ratio - b.quick_ratio) * (a.precise_ratio - b.precise_ratio) > 0 AS agreed,
    a.precise_low > b.precise_high OR b.precise_low > a.precise_high AS certain
  FROM timed a
  JOIN timed b ON b.run_id = a.run_id AND b.environment_id = a.environment_id AND b.candidate_id > a.candidate_id
  WHERE a.precise_ratio <> b.precise_ratio
),
counted AS (
  SELECT run_id, environment_id, count(1) AS pairs, sum(agreed) AS agreed_pairs,
    sum(certain) AS certain_pairs, sum(agreed AND certain) AS certain_agreed_pairs
  FROM pairs GROUP BY run_id, environment_id
)
SELECT
  t.run_id, t.environment_id, count(1) AS candidates, sum(t.overturned) AS overturned,
  ifnull(c.pairs, 0) AS pairs, ifnull(c.agreed_pairs, 0) AS agreed_pairs,
  CAST(c.agreed_pairs AS DOUBLE) / c.pairs AS agreed_share,
  ifnull(c.certain_pairs, 0) AS certain_pairs, ifnull(c.certain_agreed_pairs, 0) AS certain_agreed_pairs,
  CAST(c.certain_agreed_pairs AS DOUBLE) / nullif(c.certain_pairs, 0) AS certain_agreed_share
FROM timed t
LEFT JOIN counted c ON c.run_id = t.run_id AND c.environment_id = t.environment_id
GROUP BY t.run_id, t.environment_id;
