// Goal: every planted defect of a SQL function can be installed, so that a simulation runs with it.
import { Client } from "pg";
import t from "tap";
import { applyFunctions, readFunctions } from "../../server/infra/db/functions.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { DEFECTS, plantedFunctions } from "../simulation/planted/index.ts";

t.test("installed one after the other", async (t) => {
  const { url } = await testDatabase(t);
  const client = new Client({ connectionString: url });
  await client.connect();
  t.teardown(() => client.end());
  const present = await readFunctions();
  for (const { name } of DEFECTS) {
    const planted = await plantedFunctions(name);
    if (planted.size === 0) continue;
    const files = present.files.map((file) => {
      const sql = planted.get(file.name);
      return sql === undefined ? file : { ...file, sql, checksum: name };
    });
    const { functions } = await applyFunctions(client, { ...present, files });
    for (const one of planted.keys()) t.ok(functions.includes(one), name);
  }
});
