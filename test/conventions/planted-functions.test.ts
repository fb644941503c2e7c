// Goal: every planted defect of a SQL function can be installed, so that a simulation runs with it.
import { Client } from "pg";
import t from "tap";
import { applyFunctions, readFunctions } from "../../server/infra/db/functions.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { DEFECTS, plantedFunction } from "../simulation/planted/index.ts";

t.test("installed one after the other", async (t) => {
  const { url } = await testDatabase(t);
  const client = new Client({ connectionString: url });
  await client.connect();
  t.teardown(() => client.end());
  const present = await readFunctions();
  for (const { name } of DEFECTS) {
    const planted = await plantedFunction(name);
    if (!planted) continue;
    const files = present.files.map((file) =>
      file.name === planted.name ? { ...file, sql: planted.sql, checksum: name } : file,
    );
    const { functions } = await applyFunctions(client, { ...present, files });
    t.ok(functions.includes(planted.name), name);
  }
});
