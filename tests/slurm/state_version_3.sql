-- A state file as the daemon and the monitor of version 3 wrote it (sqlite3's dump; commits b61113e and b6001df).
BEGIN TRANSACTION;
CREATE TABLE "intents" (
    number INTEGER PRIMARY KEY,
    job_id INTEGER NOT NULL,
    kind TEXT NOT NULL,
    from_nodes INTEGER NOT NULL,
    to_nodes INTEGER NOT NULL,
    node_cores INTEGER NOT NULL,
    restarts INTEGER NOT NULL,
    stop_timeout_s REAL NOT NULL,
    stage TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    began_s REAL NOT NULL,
    changed_s REAL NOT NULL,
    reason TEXT NOT NULL,
    outcome TEXT NOT NULL
) STRICT;
INSERT INTO "intents" VALUES(1,7,'requeue',2,4,8,0,150.0,'asked',1,6.0,6.0,'late','');
CREATE TABLE "notices" (
    job_id INTEGER NOT NULL,
    channel TEXT NOT NULL,
    text TEXT NOT NULL,
    sent_s REAL NOT NULL,
    PRIMARY KEY (job_id, channel)
) STRICT;
INSERT INTO "notices" VALUES(7,'mail','grow',5.0);
CREATE TABLE subjects (
    subject TEXT PRIMARY KEY,
    asked_s REAL NOT NULL,
    comment TEXT NOT NULL
) STRICT;
INSERT INTO "subjects" VALUES('model=gpt2',12.0,'rightsizer: model=gpt2 tokens=1B');
CREATE TABLE tickets (
    name TEXT PRIMARY KEY,
    made_s REAL NOT NULL,
    question TEXT NOT NULL,
    answer TEXT,
    job_id INTEGER
) STRICT;
INSERT INTO "tickets" VALUES('ab120',10.0,'{"comment": "rightsizer: model=gpt2 tokens=1B", "kind": "sbatch", "mode": "size", "uid": 1000, "user": "alice", "account": "", "qos": "", "partition": "", "min_nodes": null, "max_nodes": 2, "num_tasks": null, "ntasks_per_node": null, "cpus_per_task": null, "time_limit": null, "time_min": null, "gres": "gres:gpu:4", "tres_per_job": "", "exclusive": null, "req_nodes": "", "exc_nodes": "", "features": "", "node_cpus": null, "node_mb": null, "core_mb": null, "gpu_memory": "", "deadline": "", "reservation": "", "array": "", "requeues": null, "priority": null, "silent": null}',NULL,NULL);
INSERT INTO "tickets" VALUES('ab121',11.0,'{"comment": "rightsizer: model=gpt2 tokens=1B", "kind": "sbatch", "mode": "size", "uid": 1000, "user": "alice", "account": "", "qos": "", "partition": "", "min_nodes": null, "max_nodes": 2, "num_tasks": null, "ntasks_per_node": null, "cpus_per_task": null, "time_limit": null, "time_min": null, "gres": "gres:gpu:4", "tres_per_job": "", "exclusive": null, "req_nodes": "", "exc_nodes": "", "features": "", "node_cpus": null, "node_mb": null, "core_mb": null, "gpu_memory": "", "deadline": "", "reservation": "", "array": "", "requeues": null, "priority": null, "silent": null}','{"verdict": "OK", "say": "1 x 4 h100", "code": "", "fields": {"min_nodes": 1, "max_nodes": 1, "gres": "gpu:h100:4"}, "variables": {"RIGHTSIZER_GPUS": "4"}}',42);
CREATE UNIQUE INDEX one_open_intent_of_a_job ON intents (job_id) WHERE stage NOT IN ('done', 'failed', 'overtaken');
COMMIT;
