// Goal: an image names the release and the commit that it was built from, and the sources do not claim a build.
import { readFileSync } from "node:fs";
import t from "tap";
import { readCommit } from "../../server/local/bootstrap.mjs";
import { nodeAdvice } from "../../server/core/node-version.ts";
import { BUILD, VERSION } from "../../server/infra/version.ts";
import { ROOT } from "../../server/infra/root.ts";

t.test("the image's labels", async (t) => {
  const recipe = readFileSync(new URL("server/Dockerfile", ROOT), "utf8");
  t.match(recipe, `ARG VERSION=${VERSION}\n`, "the version of package.json");
  for (const [label, argument] of [
    ["version", "VERSION"],
    ["revision", "COMMIT"],
    ["created", "BUILT_AT"],
  ] as const)
    t.match(recipe, `org.opencontainers.image.${label}="\${${argument}}"`);
  t.match(recipe, "PURSER_COMMIT=${COMMIT} PURSER_BUILT_AT=${BUILT_AT}", "what the code reports");
});

t.test("the image, the forges and .nvmrc have a version of Node that we recommend", async (t) => {
  const read = (file: string): string => readFileSync(new URL(file, ROOT), "utf8");
  const files = [
    "server/Dockerfile",
    "docker-compose.yml",
    "ops/compose.replicas.yaml",
    ".ci/image-test",
  ];
  for (const file of [...files, ".github/workflows/ci.yml", ".gitlab-ci.yml"]) {
    const versions = [...read(file).matchAll(/\bnode:(\d+)/g)].map(([, version = ""]) => version);
    t.ok(versions.length > 0, file);
    t.same(
      versions.filter((version) => nodeAdvice(version) !== undefined),
      [],
      file,
    );
  }
  t.equal(nodeAdvice(read(".nvmrc").trim()), undefined);
  t.match(nodeAdvice("20.20.2"), /^Node 20\.20\.2 gets no security fixes/);
  t.match(nodeAdvice("23.1.0"), /long-term support/);
});

t.test("the commit", async (t) => {
  t.same(BUILD, { commit: "source", builtAt: null }, "the sources run directly");
  const { PURSER_COMMIT } = process.env;
  t.teardown(() => {
    if (PURSER_COMMIT === undefined) delete process.env["PURSER_COMMIT"];
    else process.env["PURSER_COMMIT"] = PURSER_COMMIT;
  });
  delete process.env["PURSER_COMMIT"];
  t.match(readCommit(), /^([0-9a-f]{40}(-dirty)?|unknown)$/);
  process.env["PURSER_COMMIT"] = "abc";
  t.equal(readCommit(), "abc", "in the build of an image, which has no checkout");
});
