// Each world starts from the same rows.
import { Client } from "pg";
import type { KnownAgent } from "./agents.ts";

/** Keeps the present rows as those from which each world starts, and makes the function that restores them. */
export async function keepRows(url: string, agents: readonly KnownAgent[]): Promise<void> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    // The audit refuses to forget, also when triggers are off; between worlds it has to.
    await client.query(`DO $$ DECLARE t record; BEGIN
      FOR t IN SELECT tgrelid::regclass AS name, tgname FROM pg_trigger WHERE tgenabled = 'A' LOOP
        EXECUTE format('ALTER TABLE %s ENABLE TRIGGER %I', t.name, t.tgname);
      END LOOP; END $$`);
    const { rows: tables } = await client.query<{ name: string; filled: boolean }>(
      `SELECT format('public.%I', relname) AS name,
              (xpath('/row/c/text()', query_to_xml(format('SELECT count(*) > 0 AS c FROM public.%I', relname), false, true, '')))[1]::text = 'true' AS filled
         FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' ORDER BY relname`,
    );
    const { rows: sequences } = await client.query<{ name: string; last: string; called: boolean }>(
      `SELECT format('public.%I', sequencename) AS name, coalesce(last_value, start_value) AS last, last_value IS NOT NULL AS called
         FROM pg_sequences WHERE schemaname = 'public'`,
    );
    const kept = (name: string): string =>
      `sim.kept_${name.slice("public.".length).replaceAll('"', "")}`;
    const steps: string[] = [];
    for (const { name, filled } of tables) {
      if (name === "public._prisma_migrations" || name === "public.purser_functions") continue;
      steps.push(`DELETE FROM ${name}`);
      if (!filled) continue;
      await client.query(`CREATE TABLE ${kept(name)} AS TABLE ${name}`);
      const { rows: columns } = await client.query<{ list: string }>(
        `SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) AS list FROM pg_attribute
          WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped AND attgenerated = ''`,
        [name],
      );
      const list = columns[0]?.list ?? "";
      steps.push(
        `INSERT INTO ${name} (${list}) OVERRIDING SYSTEM VALUE SELECT ${list} FROM ${kept(name)}`,
      );
    }
    for (const { name, last, called } of sequences)
      steps.push(`PERFORM setval('${name}', ${last}, ${called})`);
    steps.push("PERFORM setval('sim.ids', 1000)");
    // Not LOCAL: each change of this setting makes a connection plan all its statements again.
    await client.query(
      `CREATE FUNCTION sim.reset() RETURNS void LANGUAGE plpgsql AS $reset$ BEGIN
         SET session_replication_role = replica; ${steps.join("; ")}; END $reset$`,
    );
    await client.query("CREATE TABLE sim.agents (agents jsonb)");
    const json = agents.map((agent) => ({ ...agent, dailyLimit: String(agent.dailyLimit) }));
    await client.query("INSERT INTO sim.agents VALUES ($1)", [JSON.stringify(json)]);
  } finally {
    await client.end();
  }
}
