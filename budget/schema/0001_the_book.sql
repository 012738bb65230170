-- The book of kernelgate, first version. Units stand last in column names; times are UTC text.
-- All tables but accounts and jobs are insert-only (triggers come with the migration); events are a hash chain.

CREATE TABLE schema_version (
  version INTEGER PRIMARY KEY,
  applied_utc TEXT NOT NULL
) STRICT;

CREATE TABLE accounts (
  account_id TEXT PRIMARY KEY CHECK (length(account_id) BETWEEN 1 AND 200),
  device_s_cap REAL CHECK (device_s_cap >= 0),  -- over all its runs; NULL: no cap
  created_utc TEXT NOT NULL
) STRICT;

CREATE TABLE tasks (
  task_digest TEXT PRIMARY KEY CHECK (length(task_digest) = 64),
  name TEXT NOT NULL,
  title TEXT NOT NULL,
  spec_json TEXT NOT NULL,  -- the whole task, with the reference's source
  created_utc TEXT NOT NULL
) STRICT;

CREATE TABLE environments (
  environment_id TEXT PRIMARY KEY,
  facts_json TEXT NOT NULL,
  created_utc TEXT NOT NULL
) STRICT;

CREATE TABLE qualifications (
  qualification_id INTEGER PRIMARY KEY,
  task_digest TEXT NOT NULL REFERENCES tasks (task_digest),
  environment_id TEXT NOT NULL REFERENCES environments (environment_id),
  qualified INTEGER NOT NULL CHECK (qualified IN (0, 1)),
  why TEXT NOT NULL,
  facts_json TEXT NOT NULL,
  gpu_s REAL NOT NULL CHECK (gpu_s >= 0),  -- paid by the house
  cpu_s REAL NOT NULL CHECK (cpu_s >= 0),
  created_utc TEXT NOT NULL
) STRICT;
CREATE INDEX qualifications_of_task ON qualifications (task_digest, environment_id);

CREATE TABLE calibrations (
  calibration_id INTEGER PRIMARY KEY,
  task_digest TEXT REFERENCES tasks (task_digest),  -- NULL: of the device, for every task
  environment_id TEXT NOT NULL REFERENCES environments (environment_id),
  kind TEXT NOT NULL,
  facts_json TEXT NOT NULL,
  gpu_s REAL NOT NULL CHECK (gpu_s >= 0),  -- paid by the house
  cpu_s REAL NOT NULL CHECK (cpu_s >= 0),
  created_utc TEXT NOT NULL
) STRICT;
CREATE INDEX calibrations_of_task ON calibrations (environment_id, kind, task_digest);

CREATE TABLE runs (
  number INTEGER PRIMARY KEY,
  run_id TEXT NOT NULL UNIQUE CHECK (run_id = 'r' || number),
  account_id TEXT NOT NULL REFERENCES accounts (account_id),
  task_digest TEXT NOT NULL REFERENCES tasks (task_digest),
  task_name TEXT NOT NULL,
  rule TEXT NOT NULL,
  rule_version INTEGER NOT NULL,
  parameters_json TEXT NOT NULL,
  budget_json TEXT NOT NULL,
  device_kind TEXT NOT NULL CHECK (device_kind IN ('cpu', 'cuda')),
  device_uid TEXT NOT NULL,
  environment_id TEXT NOT NULL REFERENCES environments (environment_id),
  idempotency_key TEXT,
  arguments_sha256 TEXT NOT NULL,
  client_name TEXT NOT NULL,
  client_version TEXT NOT NULL,
  created_utc TEXT NOT NULL,
  monotonic_s REAL NOT NULL,
  UNIQUE (account_id, idempotency_key)
) STRICT;

CREATE TABLE candidates (
  number INTEGER PRIMARY KEY,
  candidate_id TEXT NOT NULL UNIQUE CHECK (candidate_id = 'c' || number),
  run_id TEXT NOT NULL REFERENCES runs (run_id),
  source_sha256 TEXT NOT NULL CHECK (length(source_sha256) = 64),
  parent_id TEXT,
  note TEXT NOT NULL,
  language TEXT NOT NULL,
  files_json TEXT NOT NULL,
  created_utc TEXT NOT NULL,
  UNIQUE (run_id, source_sha256),
  UNIQUE (run_id, candidate_id),
  FOREIGN KEY (run_id, parent_id) REFERENCES candidates (run_id, candidate_id)
) STRICT;

CREATE TABLE jobs (
  number INTEGER PRIMARY KEY,
  job_id TEXT NOT NULL UNIQUE CHECK (job_id = 'j' || number),
  run_id TEXT NOT NULL REFERENCES runs (run_id),
  candidate_id TEXT,
  account_id TEXT NOT NULL REFERENCES accounts (account_id),
  tool TEXT NOT NULL,
  arguments_sha256 TEXT NOT NULL,
  arguments_json TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('queued', 'running', 'done', 'cancelled', 'lost')),
  result_json TEXT,
  owner_pid INTEGER NOT NULL,
  owner_start_s REAL NOT NULL,
  created_utc TEXT NOT NULL,
  heartbeat_utc TEXT NOT NULL,
  finished_utc TEXT,
  FOREIGN KEY (run_id, candidate_id) REFERENCES candidates (run_id, candidate_id),
  CHECK ((state IN ('done', 'cancelled', 'lost')) = (finished_utc IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX jobs_once_at_a_time ON jobs (run_id, ifnull(candidate_id, ''), tool, arguments_sha256)
  WHERE state IN ('queued', 'running');
CREATE INDEX jobs_of_owner ON jobs (owner_pid) WHERE state IN ('queued', 'running');

CREATE TABLE events (
  seq INTEGER PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN
    ('grant', 'hold', 'override', 'extend', 'settle', 'release', 'refuse', 'overrun', 'note', 'close')),
  account_id TEXT NOT NULL REFERENCES accounts (account_id),
  run_id TEXT REFERENCES runs (run_id),
  candidate_id TEXT,
  job_id TEXT REFERENCES jobs (job_id),
  rung TEXT CHECK (rung IN ('compile', 'check', 'quick', 'precise', 'profile')),
  environment_id TEXT REFERENCES environments (environment_id),
  hold_seq INTEGER REFERENCES events (seq),  -- the hold or override that this row extends, ends or overruns
  calls INTEGER NOT NULL DEFAULT 0 CHECK (calls >= 0),
  override_calls INTEGER NOT NULL DEFAULT 0 CHECK (override_calls >= 0),
  gpu_s REAL NOT NULL DEFAULT 0 CHECK (gpu_s >= 0),
  cpu_s REAL NOT NULL DEFAULT 0 CHECK (cpu_s >= 0),
  work_s REAL NOT NULL DEFAULT 0 CHECK (work_s >= 0),
  overrun_s REAL NOT NULL DEFAULT 0 CHECK (overrun_s >= 0),
  purse_json TEXT,       -- the run's purse after this event
  decision_json TEXT,    -- what the rule said and saw, at the guarded rung
  refusal_kind TEXT CHECK (refusal_kind IN
    ('rung_missing', 'rule', 'purse', 'deadline', 'not_here', 'task_unqualified')),
  reason TEXT NOT NULL DEFAULT '',
  missing TEXT NOT NULL DEFAULT '',
  rows_sha256 TEXT,      -- over the result, sample, artifact and observation rows that this event stands for
  created_utc TEXT NOT NULL,
  monotonic_s REAL NOT NULL,
  prev_hash TEXT NOT NULL,
  hash TEXT NOT NULL CHECK (length(hash) = 64),
  FOREIGN KEY (run_id, candidate_id) REFERENCES candidates (run_id, candidate_id),
  CHECK (kind NOT IN ('extend', 'settle', 'release', 'overrun') OR hold_seq IS NOT NULL),
  CHECK ((kind = 'refuse') = (refusal_kind IS NOT NULL))
) STRICT;
CREATE INDEX events_of_run ON events (run_id, seq);
CREATE INDEX events_holds_of_job ON events (job_id) WHERE kind IN ('hold', 'override');
CREATE INDEX events_promotions_of_run ON events (run_id, seq) WHERE kind = 'hold' AND rung = 'precise';
CREATE UNIQUE INDEX events_hold_ends_once ON events (hold_seq) WHERE kind IN ('settle', 'release');
CREATE UNIQUE INDEX events_hold_extended_once ON events (hold_seq) WHERE kind = 'extend';
CREATE UNIQUE INDEX events_run_granted_once ON events (run_id) WHERE kind = 'grant';
CREATE UNIQUE INDEX events_run_closed_once ON events (run_id) WHERE kind = 'close';

CREATE TABLE results (
  result_id INTEGER PRIMARY KEY,
  event_seq INTEGER NOT NULL UNIQUE,  -- the settle that pays for it, or the note of a replay; written before it
  run_id TEXT NOT NULL,
  candidate_id TEXT NOT NULL,
  source_sha256 TEXT NOT NULL,
  task_digest TEXT NOT NULL REFERENCES tasks (task_digest),
  workload_set TEXT NOT NULL,
  plan_digest TEXT NOT NULL,
  rung TEXT NOT NULL CHECK (rung IN ('compile', 'check', 'quick', 'precise', 'profile')),
  environment_id TEXT NOT NULL REFERENCES environments (environment_id),
  verdict TEXT NOT NULL,
  code TEXT,
  report_json TEXT NOT NULL,
  ratio REAL CHECK (ratio > 0),  -- baseline time / candidate time
  ratio_low REAL CHECK (ratio_low <= ratio),
  ratio_high REAL CHECK (ratio_high >= ratio),
  gpu_s REAL NOT NULL CHECK (gpu_s >= 0),       -- charged
  cpu_s REAL NOT NULL CHECK (cpu_s >= 0),       -- charged
  work_s REAL NOT NULL CHECK (work_s >= 0),     -- charged against the deadline
  overrun_s REAL NOT NULL CHECK (overrun_s >= 0),  -- measured above the hold, paid by the house
  house_s REAL NOT NULL CHECK (house_s >= 0),   -- of the lease, for ourselves: referee, calibration
  queue_s REAL NOT NULL CHECK (queue_s >= 0),
  prepare_s REAL NOT NULL CHECK (prepare_s >= 0),
  wall_s REAL NOT NULL CHECK (wall_s >= 0),
  replay_of INTEGER REFERENCES results (result_id),
  created_utc TEXT NOT NULL,
  FOREIGN KEY (run_id, candidate_id) REFERENCES candidates (run_id, candidate_id),
  CHECK ((ratio IS NULL) = (ratio_low IS NULL) AND (ratio IS NULL) = (ratio_high IS NULL))
) STRICT;
CREATE INDEX results_of_candidate ON results (candidate_id, rung, environment_id);
CREATE INDEX results_of_run ON results (run_id, rung, event_seq);
CREATE INDEX results_of_source ON results (source_sha256, task_digest, rung);
CREATE INDEX results_of_task ON results (task_digest, environment_id, rung);

CREATE TABLE samples (
  sample_id INTEGER PRIMARY KEY,
  result_id INTEGER NOT NULL REFERENCES results (result_id),
  workload TEXT NOT NULL,
  block_index INTEGER NOT NULL,
  side TEXT NOT NULL CHECK (side IN ('baseline', 'candidate', 'incumbent')),
  samples_us BLOB NOT NULL,  -- float32, little-endian, one per call: the side's own clock
  n INTEGER NOT NULL CHECK (length(samples_us) = 4 * n),
  outside_us BLOB NOT NULL CHECK (length(outside_us) % 4 = 0),  -- float32, little-endian: the referee's clock
  verified INTEGER NOT NULL CHECK (verified IN (0, 1)),
  voided INTEGER NOT NULL CHECK (voided IN (0, 1)),
  state_json TEXT,  -- device state of the block: clock, temperature, throttle reasons
  UNIQUE (result_id, workload, block_index, side)
) STRICT;

CREATE TABLE artifacts (
  artifact_id INTEGER PRIMARY KEY,
  result_id INTEGER NOT NULL REFERENCES results (result_id),
  run_id TEXT NOT NULL REFERENCES runs (run_id),
  name TEXT NOT NULL,
  media_type TEXT NOT NULL,
  artifact_sha256 TEXT NOT NULL CHECK (length(artifact_sha256) = 64),
  size_bytes INTEGER NOT NULL,
  path TEXT,  -- relative to the ledger's folder; NULL: not kept, the run's share was used up
  created_utc TEXT NOT NULL,
  UNIQUE (result_id, name)
) STRICT;
CREATE INDEX artifacts_of_run ON artifacts (run_id);

CREATE TABLE observations (
  observation_id INTEGER PRIMARY KEY,
  environment_id TEXT NOT NULL REFERENCES environments (environment_id),
  result_id INTEGER REFERENCES results (result_id),
  facts_json TEXT NOT NULL,  -- clocks, load, noise floor, confinement while measuring
  created_utc TEXT NOT NULL
) STRICT;
CREATE INDEX observations_of_result ON observations (result_id);
