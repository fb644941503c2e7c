// Runs Prisma's schema engine as WebAssembly (no download needed) to compare a database with schema.prisma.
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { PrismaPg } from "@prisma/adapter-pg";
import { bindMigrationAwareSqlAdapterFactory } from "@prisma/driver-adapter-utils";
import * as glue from "@prisma/schema-engine-wasm/schema_engine_bg";
import { Pool, type QueryResult } from "pg";
import type { Test } from "tap";

interface DiffEngine {
  diff(params: object): Promise<{ stdout: string | null }>;
}
interface EngineGlue {
  __wbg_set_wasm(exports: unknown): void;
  SchemaEngine: { new: (options: object, log: () => void, adapter: object) => Promise<DiffEngine> };
}

/** The SQL that would migrate the database to `schema`; "empty migration" if they agree. */
export async function schemaDrift(
  t: Pick<Test, "teardown">,
  databaseUrl: string,
  schema: string,
): Promise<string> {
  const files = [{ path: "schema.prisma", content: schema }];
  const engine = await startEngine(t, databaseUrl, schema);
  const { stdout } = await engine.diff({
    from: { tag: "schemaDatasource", files, configDir: "." },
    to: { tag: "schemaDatamodel", files },
    script: true,
    exitCode: null,
    filters: { externalTables: ["public._prisma_migrations"], externalEnums: [] },
  });
  return stdout ?? "";
}

let loaded: Promise<EngineGlue> | undefined;

/** The module keeps its memory in module state, so there is one instance in each process. */
function loadEngine(): Promise<EngineGlue> {
  loaded ??= (async () => {
    const { resolve } = createRequire(import.meta.url);
    const wasmPath = resolve("@prisma/schema-engine-wasm").replace(
      /schema_engine\.js$/,
      "schema_engine_bg.wasm",
    );
    const imports = { "./schema_engine_bg.js": glue as never };
    const { instance } = await WebAssembly.instantiate(await readFile(wasmPath), imports);
    const engine = glue as unknown as EngineGlue;
    // The engine reports a panic through this hook; without it, a panic is silent.
    Object.assign(globalThis, {
      PRISMA_WASM_PANIC_REGISTRY: { set_message: (text: string) => console.error(text) },
    });
    engine.__wbg_set_wasm(instance.exports);
    (instance.exports as { __wbindgen_start(): void }).__wbindgen_start();
    return engine;
  })();
  return loaded;
}

async function startEngine(
  t: Pick<Test, "teardown">,
  databaseUrl: string,
  schema: string,
): Promise<DiffEngine> {
  const engine = await loadEngine();
  const adapter = bindMigrationAwareSqlAdapterFactory(adapterThatKnowsChar(t, databaseUrl));
  return engine.SchemaEngine.new(
    { datamodels: [["schema.prisma", schema]] },
    () => undefined,
    adapter,
  );
}

const CHAR_OID = 18;
const TEXT_OID = 25;
const CHARACTER_COLUMN = 6;

/** The adapter does not support the one-byte "char" type, which Postgres' catalogue uses and the engine reads. */
function adapterThatKnowsChar(t: Pick<Test, "teardown">, connectionString: string): PrismaPg {
  const pool = new Pool({ connectionString });
  t.teardown(() => pool.end());
  const query = pool.query.bind(pool) as (config: object) => Promise<QueryResult>;
  let charColumns: number[] = [];
  const asText = async (config: object): Promise<QueryResult> => {
    const result = await query(config);
    charColumns = result.fields.flatMap((field, index) =>
      field.dataTypeID === CHAR_OID ? [index] : [],
    );
    for (const index of charColumns)
      Object.assign(result.fields[index] ?? {}, { dataTypeID: TEXT_OID });
    return result;
  };
  Object.assign(pool, { query: asText });
  const factory = new PrismaPg(pool);
  const connect = factory.connect.bind(factory);
  factory.connect = async () => {
    const adapter = await connect();
    const queryRaw = adapter.queryRaw.bind(adapter);
    // The engine sends one query at a time, so the columns are those of this result.
    adapter.queryRaw = async (question) => {
      const answer = await queryRaw(question);
      for (const index of charColumns) answer.columnTypes[index] = CHARACTER_COLUMN;
      return answer;
    };
    return adapter;
  };
  return factory;
}
