// Goal: the compose files conform to the Compose Specification, grant no more rights than needed, and refer
// only to settings, files and secrets that exist. No container engine is needed.
import { spawnSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Ajv } from "ajv";
import addFormats from "ajv-formats";
import t from "tap";
import { parse } from "yaml";
import { readTexts } from "../../server/config.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const textOf = (file: string): string => readFileSync(`${ROOT}${file}`, "utf8");

interface Service {
  image?: string;
  command?: string[];
  build?: { dockerfile: string };
  read_only?: boolean;
  cap_drop?: string[];
  cap_add?: string[];
  privileged?: boolean;
  security_opt?: string[];
  user?: string;
  ports?: string[];
  networks?: string[];
  environment?: Record<string, string>;
  secrets?: string[];
  volumes?: string[];
  healthcheck?: { test: string[] };
  depends_on?: Record<string, { condition: string }>;
}
interface Compose {
  services: Record<string, Service>;
  secrets?: Record<string, { file: string }>;
  networks?: Record<string, { internal?: boolean } | null>;
}
/**
 * As published: github.com/compose-spec/compose-spec, schema/compose-spec.json (Apache 2.0, its licence is in
 * the same folder).
 */
const schema = JSON.parse(textOf("test/operations/compose-spec/compose-spec.json")) as object;
const ajv = new Ajv({ strict: false, allErrors: true });
// The default export differs between the two module systems: the function itself, or a namespace that
// contains it.
(addFormats as unknown as { default: (ajv: Ajv) => void }).default(ajv);
const validate = ajv.compile({ ...schema, $schema: "http://json-schema.org/draft-07/schema#" });
const read = (file: string): Compose => parse(textOf(file), { merge: true }) as Compose;
/** Each with the files that go on top of it. */
const FILES = [
  ["docker-compose.yml"],
  ["docker-compose.yml", "ops/compose.custody.yaml"],
  ["ops/compose.replicas.yaml"],
  ["ops/compose.replicas.yaml", "ops/compose.failed-over.yaml"],
] as const;

/** As compose merges files: lists of volumes are joined, keys of the environment replaced. */
function merged(...files: readonly string[]): Compose {
  const all: Compose = { services: {} };
  for (const file of files) {
    const { services, ...rest } = read(file);
    Object.assign(all, { ...all, ...rest, services: all.services });
    for (const [name, service] of Object.entries(services)) {
      const below = all.services[name] ?? {};
      all.services[name] = {
        ...below,
        ...service,
        environment: { ...below.environment, ...service.environment },
        volumes: [...(below.volumes ?? []), ...(service.volumes ?? [])],
      };
    }
  }
  return all;
}

/** Whether the service reads this environment key; of a secret's file, its path. */
const isRead = (key: string): boolean => readTexts({ [key]: "x" }, "service", []).has(key);

t.test("every compose file is checked here, and run by .ci/image-test", async (t) => {
  const isCompose = /^(docker-)?compose.*\.ya?ml$/;
  const own = ["", "ops/"].flatMap((folder) =>
    readdirSync(`${ROOT}${folder}`)
      .filter((name) => isCompose.test(name))
      .map((name) => folder + name),
  );
  t.same(new Set(own), new Set(FILES.flat()));
  const script = textOf(".ci/image-test");
  for (const file of own) t.ok(script.includes(`-f ${file})`), file);
  t.ok(script.includes("ops/examples/*.env"));
});

t.test("the schema refuses an invalid compose file", async (t) => {
  t.notOk(validate({ services: { a: { image: "x", prots: ["1:1"] } } }));
  t.notOk(validate({ services: { a: { image: "x", read_only: [] } } }));
});

for (const files of FILES) {
  const compose = merged(...files);
  const file = files.join(" with ");
  t.test(`${file} conforms to the specification`, async (t) => {
    for (const one of files) {
      validate(read(one));
      t.same(validate.errors ?? [], [], one);
    }
  });

  t.test(`${file} grants only what is needed`, async (t) => {
    for (const [name, service] of Object.entries(compose.services)) {
      t.equal(service.read_only, true, `${name} cannot write to its image`);
      t.same(service.cap_drop, ["ALL"], name);
      t.same(service.security_opt, ["no-new-privileges:true"], name);
      t.notOk(service.cap_add ?? service.privileged ?? service.user === "root", name);
      // Operators pin the version that they tested.
      t.match(service.image ?? "", /^\$\{[A-Z]+_IMAGE:-[a-z]+:[\w.-]+\}$/, name);
      const isOurs = service.image?.startsWith("${PURSER_IMAGE") === true;
      t.ok(isOurs || service.healthcheck !== undefined, `${name} is looked at`);
      if (isOurs)
        for (const key of Object.keys(service.environment ?? {}))
          t.ok(isRead(key), `${name}: ${key}`);
      for (const secret of service.secrets ?? [])
        t.ok(compose.secrets?.[secret], `${name}: ${secret}`);
      for (const value of Object.values(service.environment ?? {})) {
        const [, secret] = /^\/run\/secrets\/(\w+)$/.exec(value) ?? [];
        if (secret !== undefined)
          t.ok(service.secrets?.includes(secret), `${name} is given ${secret}`);
      }
      for (const volume of service.volumes ?? [])
        if (volume.startsWith("./"))
          t.ok(existsSync(`${ROOT}${volume.split(":", 1)[0] ?? ""}`), volume);
      for (const other of Object.keys(service.depends_on ?? {}))
        t.ok(compose.services[other], other);
    }
  });
}

t.test("with replicas: secrets come from files, and only the proxy is reachable", async (t) => {
  const { services, networks } = read("ops/compose.replicas.yaml");
  const replicas = Object.entries(services).filter(([name]) => name.startsWith("purser-"));
  t.equal(replicas.length, 3);
  const secret = /(?<!PASS)KEY|PASSWORD|TOKEN|DATABASE_URL|RPC_URL/;
  for (const [name, { environment = {} }] of Object.entries(services))
    for (const key of Object.keys(environment)) if (secret.test(key)) t.match(key, /_FILE$/, name);
  t.same(
    Object.keys(services).filter((name) => services[name]?.ports),
    ["proxy"],
  );
  for (const name of ["postgres-primary", "postgres-standby"])
    t.same(services[name]?.networks, ["database"]);
  // compose-database.test.ts runs them.
  t.same(
    services["postgres-standby"]?.command,
    services["postgres-primary"]?.command,
    "a standby with less than its primary does not start",
  );
  t.match(
    textOf("ops/compose.replicas.yaml"),
    /@postgres-primary,postgres-standby\/purser" > database_url$/m,
    "the replicas know both servers",
  );
  t.equal(networks?.["database"]?.internal, true);
  t.match(textOf(".dockerignore"), /^secrets$/m);
  t.match(textOf(".gitignore"), /^\/secrets\/$/m);
  const targets = parse(textOf("ops/prometheus/prometheus.yaml")) as {
    scrape_configs: { static_configs: { targets: string[] }[] }[];
  };
  const names = replicas.map(([name]) => `${name}:3000`);
  t.same(
    targets.scrape_configs[0]?.static_configs[0]?.targets,
    names,
    "Prometheus scrapes each replica",
  );
  const proxied = [...textOf("ops/replicas/haproxy.cfg").matchAll(/^ {2}server \S+ (\S+)$/gm)];
  t.same(
    proxied.map(([, target]) => target),
    [...names, ...names],
    "and the proxy balances over the same replicas",
  );
});

t.test("with custody: only its container has the master keys", async (t) => {
  const { services } = merged("docker-compose.yml", "ops/compose.custody.yaml");
  const [service, custody] = [services["purser"], services["custody"]];
  const keys = [
    "MASTER_KEYS",
    "MASTER_KEY_ACTIVE",
    "CHANNEL_KEYS",
    "RELAYER_PRIVATE_KEYS",
    "CUSTODY_SOCKET",
  ];
  const given = (of: Service | undefined) =>
    keys.filter((key) => (of?.environment?.[key] ?? "") !== "");
  t.same(given(service), ["RELAYER_PRIVATE_KEYS", "CUSTODY_SOCKET"]);
  t.same(given(custody), ["MASTER_KEYS", "MASTER_KEY_ACTIVE", "CHANNEL_KEYS", "CUSTODY_SOCKET"]);
  t.equal(service?.environment?.["CUSTODY_SOCKET"], custody?.environment?.["CUSTODY_SOCKET"]);
  // The socket's folder belongs to the image's user, and a new volume takes over its owner and mode.
  const [, folder = ""] =
    /^(.+)\/[^/]+$/.exec(custody?.environment?.["CUSTODY_SOCKET"] ?? "") ?? [];
  for (const each of [service, custody]) t.ok(each?.volumes?.includes(`custody:${folder}`));
  t.match(
    textOf("server/Dockerfile"),
    new RegExp(`^RUN install -d -o 1000 -g 1000 -m 0700 ${folder}$`, "m"),
  );
  t.notOk(custody?.ports);
});

t.test("the database's scripts are valid bash", async (t) => {
  for (const name of ["primary.sh", "standby.sh"]) {
    const { status, stderr } = spawnSync("bash", ["-n", `${ROOT}ops/replicas/${name}`], {
      encoding: "utf8",
    });
    t.equal(status, 0, stderr);
  }
});
