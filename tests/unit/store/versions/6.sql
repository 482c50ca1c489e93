BEGIN TRANSACTION;
CREATE TABLE agent_sessions (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            owner TEXT NOT NULL,
            agent TEXT NOT NULL,
            version TEXT NOT NULL,
            mode TEXT NOT NULL,
            state TEXT NOT NULL,
            sandbox_id TEXT NOT NULL,
            own_sandbox INTEGER NOT NULL,
            job_id TEXT NOT NULL,
            task TEXT,
            model TEXT,
            project TEXT,
            conversation TEXT,
            created_at REAL NOT NULL,
            ended_at REAL,
            exit_code INTEGER,
            error TEXT,
            usage TEXT NOT NULL,
            request TEXT NOT NULL
        ) STRICT;
INSERT INTO "agent_sessions" VALUES(1,'ffffffffffffffffffff','uid:1000','claude','2.1.0','headless','ended','aaaaaaaaaaaaaaaaaaaa',1,'cccccccccccccccccccc','fix it',NULL,'/home/me/app',NULL,1700000000.0,NULL,0,NULL,'{"turns":3}','{"agent":"claude"}');
CREATE TABLE events (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            at REAL NOT NULL,
            sandbox_id TEXT,
            owner TEXT,
            kind TEXT NOT NULL,
            body TEXT NOT NULL
        ) STRICT;
INSERT INTO "events" VALUES(1,1700000000.0,'aaaaaaaaaaaaaaaaaaaa','uid:1000','a','{}');
INSERT INTO "events" VALUES(2,1700000000.0,NULL,NULL,'b','{}');
CREATE TABLE idempotency_keys (
            owner TEXT NOT NULL,
            key TEXT NOT NULL,
            fingerprint TEXT NOT NULL,
            expires_at REAL NOT NULL,
            sandbox INTEGER NOT NULL REFERENCES sandboxes (seq) ON DELETE CASCADE,
            PRIMARY KEY (owner, key)
        ) STRICT, WITHOUT ROWID;
INSERT INTO "idempotency_keys" VALUES('uid:1000','k','f',1700086400.0,1);
CREATE TABLE jobs (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            sandbox_id TEXT NOT NULL REFERENCES sandboxes (id) ON DELETE CASCADE,
            argv TEXT NOT NULL,
            options TEXT NOT NULL,
            state TEXT NOT NULL,
            status TEXT,
            created_at REAL NOT NULL,
            ended_at REAL
        ) STRICT;
INSERT INTO "jobs" VALUES(1,'cccccccccccccccccccc','aaaaaaaaaaaaaaaaaaaa','["sleep","1"]','{}','running',NULL,1700000000.0,NULL);
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('boot_id','f8482a47-0a20-4e08-aaf4-dceb72fe72b6');
INSERT INTO "meta" VALUES('clean','1');
CREATE TABLE sandbox_labels (
            key TEXT NOT NULL,
            value TEXT NOT NULL,
            sandbox INTEGER NOT NULL,
            PRIMARY KEY (key, value, sandbox)
        ) STRICT, WITHOUT ROWID;
INSERT INTO "sandbox_labels" VALUES('team','a',1);
CREATE TABLE sandboxes (
            seq INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            name TEXT,
            owner TEXT NOT NULL,
            backend TEXT NOT NULL,
            state TEXT NOT NULL,
            blueprint TEXT NOT NULL,
            env TEXT NOT NULL,
            labels TEXT NOT NULL,
            ephemeral INTEGER NOT NULL,
            created_at REAL NOT NULL,
            updated_at REAL NOT NULL,
            started_at REAL,
            ttl_seconds REAL,
            idle_seconds REAL,
            on_ttl TEXT NOT NULL,
            on_idle TEXT NOT NULL,
            expires_at REAL,
            handle TEXT,
            error TEXT
        , config TEXT, network TEXT, ports TEXT) STRICT;
INSERT INTO "sandboxes" VALUES(1,'aaaaaaaaaaaaaaaaaaaa','web','uid:1000','native','running','{"image":"host"}','{"A":"b"}','{"team":"a"}',0,1700000000.0,1700000000.0,NULL,NULL,NULL,'stop','stop',NULL,'{"pid":17}',NULL,NULL,NULL,NULL);
INSERT INTO "sandboxes" VALUES(2,'bbbbbbbbbbbbbbbbbbbb',NULL,'other','native','error','{}','{}','{}',1,1700000000.0,1700000000.0,NULL,NULL,NULL,'stop','stop',NULL,NULL,'it broke',NULL,NULL,NULL);
CREATE TABLE tokens (
            id TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            owner TEXT NOT NULL,
            scopes TEXT NOT NULL,
            sha256 TEXT NOT NULL,
            created_at REAL NOT NULL,
            expires_at REAL,
            last_used_at REAL,
            revoked_at REAL
        ) STRICT, WITHOUT ROWID;
INSERT INTO "tokens" VALUES('dddddddddddddddddddd','ci','token:ci','["read"]','0000000000000000000000000000000000000000000000000000000000000000',1700000000.0,NULL,NULL,NULL);
CREATE TABLE volumes (
            id TEXT PRIMARY KEY,
            name TEXT NOT NULL,
            owner TEXT NOT NULL,
            state TEXT NOT NULL,
            exclusive INTEGER NOT NULL,
            quota_bytes INTEGER,
            created_at REAL NOT NULL
        ) STRICT, WITHOUT ROWID;
INSERT INTO "volumes" VALUES('eeeeeeeeeeeeeeeeeeee','cache','uid:1000','ready',1,1073741824,1700000000.0);
CREATE UNIQUE INDEX sandboxes_by_name ON sandboxes (owner, name)
            WHERE name IS NOT NULL;
CREATE INDEX jobs_by_sandbox ON jobs (sandbox_id);
CREATE INDEX events_by_sandbox ON events (sandbox_id)
            WHERE sandbox_id IS NOT NULL;
CREATE INDEX idempotency_keys_by_sandbox ON idempotency_keys (sandbox);
CREATE INDEX idempotency_keys_by_expiry ON idempotency_keys (expires_at);
CREATE UNIQUE INDEX volumes_by_name ON volumes (owner, name);
CREATE INDEX agent_sessions_by_sandbox ON agent_sessions (sandbox_id);
CREATE INDEX agent_sessions_by_project ON agent_sessions (project, agent);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('sandboxes',2);
INSERT INTO "sqlite_sequence" VALUES('jobs',1);
INSERT INTO "sqlite_sequence" VALUES('agent_sessions',1);
INSERT INTO "sqlite_sequence" VALUES('events',2);
COMMIT;
PRAGMA application_id = 1634430572;
PRAGMA user_version = 6;
