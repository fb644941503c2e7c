// Goal: the Helm chart and the systemd units are accepted by their own tools, grant no more than needed, and name only
// settings that the service reads.
// Limit: 20 minutes. (Helm is compiled.)
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import t from "tap";
import { parse, parseAllDocuments } from "yaml";
import { readTexts, type Part } from "../../server/config.ts";
import { goWith } from "../helpers/go.ts";
import { isFullTier } from "../helpers/tier.ts";
import { kubernetesSchemas } from "./kubernetes-schemas.ts";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const CHART = `${ROOT}ops/helm/purser`;
const UNITS = ["purser", "purser-custody"].map((name) => `${ROOT}ops/systemd/${name}.service`);
const TOOLS = [
  "helm.sh/helm/v3/cmd/helm@v3.22.0",
  "github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0",
];
/** What is compiled by hand takes an old one for granted. */
const KUBERNETES = "1.31.0";
const textOf = (file: string): string => readFileSync(file, "utf8");
const isRead = (key: string, part: Part): boolean => readTexts({ [key]: "x" }, part, []).has(key);
const partOf = (unit: string): Part => (unit.includes("custody") ? "custody" : "service");

t.test("systemd: each secret is handed over, and is a setting that is read", async (t) => {
  for (const unit of UNITS) {
    const text = textOf(unit);
    const handed = [...text.matchAll(/^LoadCredential=(\w+):/gm)].map(([, name]) => name);
    const files = [...text.matchAll(/^Environment=(\w+_FILE)=%d\/(\w+)$/gm)];
    t.same(new Set(files.map(([, , name]) => name)), new Set(handed));
    for (const [, key = ""] of files) t.ok(isRead(key, partOf(unit)), key);
  }
});

const analyze = (...args: string[]) =>
  spawnSync("systemd-analyze", ["--no-pager", ...args], { encoding: "utf8" });
const hasSystemd = analyze("--version").status === 0;
t.test(
  "systemd-analyze accepts the units, and finds little that they may do",
  { skip: hasSystemd ? false : "systemd-analyze is not installed" },
  async (t) => {
    const { status, stderr } = analyze("verify", ...UNITS);
    t.same([status, stderr.trim()], [0, ""]);
    for (const unit of UNITS) {
      // In tenths; the service without any of these lines has 96.
      const { status, stdout } = analyze("security", "--offline=true", "--threshold=15", unit);
      t.equal(status, 0, stdout);
    }
  },
);

interface Values {
  settings: Record<string, string>;
  secret: { keys: string[] };
  custody: { secret: { keys: string[] } };
}

t.test("the chart's values name settings that are read", async (t) => {
  const { settings, secret, custody } = parse(textOf(`${CHART}/values.yaml`)) as Values;
  for (const key of Object.keys(settings)) t.ok(isRead(key, "service"), key);
  for (const key of secret.keys) t.ok(isRead(`${key}_FILE`, "service"), key);
  for (const key of custody.secret.keys) t.ok(isRead(`${key}_FILE`, "custody"), key);
});

t.test("the chart has the version of the service", async (t) => {
  const { version } = JSON.parse(textOf(`${ROOT}package.json`)) as { version: string };
  const chart = parse(textOf(`${CHART}/Chart.yaml`)) as { version: string; appVersion: string };
  t.same([chart.version, chart.appVersion], [version, version]);
});

interface Container {
  name: string;
  securityContext: Record<string, unknown>;
  env: { name: string; value: string }[];
  volumeMounts: { name: string }[];
}
interface Resource {
  kind: string;
  spec: {
    template: {
      spec: {
        automountServiceAccountToken: boolean;
        securityContext: Record<string, unknown>;
        containers: Container[];
      };
    };
  };
}

const SET = [
  "image.repository=registry.example/purser",
  "publicUrl=https://pay.example.com",
  "secret.name=purser",
];
const WITH_EVERYTHING = [
  "ingress.enabled=true",
  "ingress.host=pay.example.com",
  "ingress.tlsSecret=tls",
  "networkPolicy.enabled=true",
  "networkPolicy.fromNamespaces={ingress}",
  "custody.enabled=true",
  "custody.secret.name=purser-custody",
  "secret.keys={DATABASE_URL,RPC_URL_5042002,RELAYER_PRIVATE_KEYS,FACILITATOR_API_KEYS}",
];

const go = isFullTier
  ? await goWith(TOOLS.map((tool) => tool.replace(/\/cmd\/\w+/, "")))
  : { missing: "helm: it is part of the full tier" };
t.test("helm and kubeconform", { skip: "missing" in go && go.missing }, async (t) => {
  const bin = t.testdir();
  const env = { ...process.env, ...("env" in go && go.env), GOBIN: bin };
  for (const tool of TOOLS) {
    const { status, stderr } = spawnSync("go", ["install", tool], { encoding: "utf8", env });
    t.equal(status, 0, stderr);
  }
  const run = (tool: string, args: readonly string[], input?: string) =>
    spawnSync(`${bin}/${tool}`, args, { encoding: "utf8", input });
  const helm = (...args: string[]) => run("helm", args);
  const template = (...set: string[]) =>
    helm(
      "template",
      "shop",
      CHART,
      `--kube-version=${KUBERNETES}`,
      ...set.flatMap((one) => ["--set", one]),
    );

  await t.test("lint", async (t) => {
    const { status, stdout } = helm("lint", "--strict", CHART, ...SET.map((one) => `--set=${one}`));
    t.equal(status, 0, stdout);
  });

  const manifests = new Map<string, string>();
  for (const [name, set] of [
    ["the least", SET],
    ["everything", [...SET, ...WITH_EVERYTHING]],
  ] as const)
    await t.test(`${name}: valid for Kubernetes, with few rights`, async (t) => {
      const { status, stdout, stderr } = template(...set);
      t.equal(status, 0, stderr);
      const all = parseAllDocuments(stdout).map((one) => one.toJS() as Resource);
      const pod = all.find(({ kind }) => kind === "Deployment")?.spec.template.spec;
      t.match(pod, {
        automountServiceAccountToken: false,
        securityContext: { runAsNonRoot: true, runAsUser: 1000 },
      });
      for (const { name, securityContext, env } of pod?.containers ?? []) {
        t.same(securityContext, {
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ["ALL"] },
        });
        const part = name === "custody" ? "custody" : "service";
        const notOfCustody = ["PURSER_MODE"];
        for (const { name: key } of env)
          t.ok(isRead(key, part) || notOfCustody.includes(key), `${name}: ${key}`);
      }
      const holders = (pod?.containers ?? [])
        .filter(({ env }) => env.some(({ name }) => name === "MASTER_KEYS_FILE"))
        .map(({ name }) => name);
      t.same(holders, [name === "everything" ? "custody" : "purser"], "one has the master keys");
      manifests.set(name, stdout);
    });

  const schemas = await kubernetesSchemas(join(bin, "schemas"), KUBERNETES);
  await t.test("kubeconform", { skip: "missing" in schemas && schemas.missing }, async (t) => {
    if ("missing" in schemas) return;
    const check = (manifest: string) =>
      run("kubeconform", ["-strict", "-summary", "-schema-location", schemas.location], manifest);
    for (const [name, manifest] of manifests) {
      const { status, stdout, stderr } = check(manifest);
      t.equal(status, 0, `${name}: ${stdout}${stderr}`);
      t.match(stdout, /Invalid: 0, Errors: 0, Skipped: 0/, name);
    }
    const whole = manifests.get("everything") ?? "";
    for (const [right, wrong, reason] of [
      ["runAsNonRoot: true", "runAsNonRoot: maybe", /runAsNonRoot.*boolean/],
      ["readOnlyRootFilesystem:", "readOnlyRootFileSystem:", /readOnlyRootFileSystem/],
      ["replicas: ", "replicas: x", /replicas.*(integer|string)/],
      ["kind: Service\n", "kind: Servant\n", /could not find schema for Servant/],
    ] as const) {
      t.ok(whole.includes(right), right);
      const { status, stdout } = check(whole.replaceAll(right, wrong));
      t.not(status, 0, wrong);
      t.match(stdout, reason);
    }
  });

  await t.test("values that cannot work are refused before anything is deployed", async (t) => {
    const refused = {
      "publicUrl=http://pay.example.com": /publicUrl/,
      "settings.LOG_LEVEL=1": /LOG_LEVEL/,
      "replica=3": /replica/,
      "custody.enabled=true": /custody/,
      "ingress.enabled=true": /ingress/,
    };
    for (const [set, reason] of Object.entries(refused)) {
      const { status, stderr } = template(...SET, set);
      t.not(status, 0, set);
      t.match(stderr, reason);
    }
    const both = template(...SET, "custody.enabled=true", "custody.secret.name=other");
    t.match(both.stderr, /only the custody container may have MASTER_KEYS/);
  });
});
