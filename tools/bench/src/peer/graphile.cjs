// Adds jobs to graphile-worker, lets it work them off and tells how long that took.
//   node bench.cjs JOBS CLIENTS|batches        with DATABASE_URL
"use strict";
const { Logger, makeWorkerUtils, run } = require("graphile-worker");

const jobs = Number(process.argv[2]);
const batches = process.argv[3] === "batches";
const connectionString = process.env.DATABASE_URL;
const logger = new Logger(() => () => {});
// For batches the settings of its own performance tests: many in flight, a large local queue, completions gathered.
const settings = batches
  ? { concurrentJobs: 100, maxPoolSize: 20, localQueue: { size: 5000 }, completeJobBatchDelay: 0 }
  : { concurrentJobs: Number(process.argv[3]), maxPoolSize: Number(process.argv[3]) + 2 };

async function main() {
  const utils = await makeWorkerUtils({ connectionString, logger });
  await utils.migrate();
  await utils.withPgClient(async (client) => {
    await client.query("SELECT graphile_worker.add_job('nothing', '{}') FROM generate_series(1, $1)", [jobs]);
    await client.query("VACUUM ANALYZE graphile_worker._private_jobs");
    await client.query("CHECKPOINT");
  });
  let done = 0;
  const began = process.hrtime.bigint();
  const runner = await run({
    preset: { worker: { connectionString, logger, pollInterval: 50, ...settings } },
    taskList: { nothing: () => void done++ },
    noHandleSignals: true,
  });
  // A job counts once its row is gone.
  const left = () =>
    utils.withPgClient(async (client) => {
      const { rowCount } = await client.query("SELECT FROM graphile_worker._private_jobs LIMIT 1");
      return rowCount > 0;
    });
  while (done < jobs || (await left())) await new Promise((resolve) => setTimeout(resolve, 5));
  const seconds = Number(process.hrtime.bigint() - began) / 1e9;
  process.stdout.write(JSON.stringify({ jobs, seconds }) + "\n");
  await runner.stop();
  await utils.release();
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
