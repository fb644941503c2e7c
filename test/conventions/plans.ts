// Records Postgres query plans of all statements that run, also inside functions and triggers.
import type { PoolClient } from "pg";
import type { Test } from "tap";
import type { Pool } from "../../server/infra/db/pool.ts";
import { testDatabase, type TestDatabase } from "../helpers/postgres.ts";

interface PlanNode {
  "Node Type": string;
  "Relation Name"?: string;
  "Index Name"?: string;
  "Index Cond"?: string;
  "Recheck Cond"?: string;
  Filter?: string;
  Alias?: string;
  "Actual Rows"?: number;
  "Actual Loops"?: number;
  "Rows Removed by Filter"?: number;
  "Rows Removed by Index Recheck"?: number;
  Plans?: PlanNode[];
}

/** One read of one table. */
export interface Scan {
  statement: string;
  node: string;
  table: string;
  /** The table, or the partition of it. */
  partition: string;
  index: string | undefined;
  rows: number;
  /** The conditions of the scan, as the planner prints them. */
  conditions: string;
}

/** A database that sends the plan of every statement as a notice to its client (auto_explain). */
export async function databaseWithPlans(t: Test): Promise<TestDatabase> {
  const database = await testDatabase(t);
  const { rows } = await database.pool.query<{ name: string }>("SELECT current_database() AS name");
  for (const [setting, value] of Object.entries({
    session_preload_libraries: "auto_explain",
    "auto_explain.log_min_duration": "0",
    "auto_explain.log_nested_statements": "on",
    "auto_explain.log_analyze": "on",
    "auto_explain.log_timing": "off",
    "auto_explain.log_format": "json",
    "auto_explain.log_level": "notice",
  }))
    await database.pool.query(`ALTER DATABASE ${rows[0]?.name} SET ${setting} = '${value}'`);
  return database;
}

/** Collects all scans from now on, in order. */
export function recordScans(...pools: Pool[]): Scan[] {
  const scans: Scan[] = [];
  const known = new WeakSet<PoolClient>();
  // On every checkout, because the pool may already have open connections.
  const record = (client: PoolClient): void => {
    if (known.has(client)) return;
    known.add(client);
    client.on("notice", ({ message }) => {
      const json = /^duration: .*plan:\n([^]*)$/.exec(message ?? "")?.[1];
      if (json === undefined) return;
      const { Plan: plan, "Query Text": statement } = JSON.parse(json) as {
        Plan: PlanNode;
        "Query Text": string;
      };
      scans.push(...scansIn(plan, statement));
    });
  };
  for (const pool of pools) pool.on("acquire", record);
  return scans;
}

function scansIn(node: PlanNode, statement: string): Scan[] {
  const below = (node.Plans ?? []).flatMap((child) => scansIn(child, statement));
  const table = node["Relation Name"];
  if (table === undefined || node["Node Type"] === "ModifyTable") return below;
  const each =
    (node["Actual Rows"] ?? 0) +
    (node["Rows Removed by Filter"] ?? 0) +
    (node["Rows Removed by Index Recheck"] ?? 0);
  const rows = each * (node["Actual Loops"] ?? 0);
  const conditions = [node["Index Cond"], node["Recheck Cond"], node.Filter]
    .concat(
      node.Plans?.filter((child) => child["Relation Name"] === undefined).map(
        (child) => child["Index Cond"],
      ) ?? [],
    )
    .join(" ");
  const { "Node Type": type, "Index Name": index } = node;
  const scan = { statement, node: type, table: tableOf(table), partition: table, index };
  return [{ ...scan, rows, conditions }, ...below];
}

const tableOf = (partition: string): string => partition.replace(/^events_\w+$/, "events");
