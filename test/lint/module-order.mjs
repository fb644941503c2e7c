// Purser's own lint rules: which module may import which, where payment schemes are known by name, and where the
// web app's query keys are defined.
//
// The order of the server's modules is read from server/app.ts, and the features of the web app are its folders, so
// that neither is listed twice.
import { readFileSync } from "node:fs";
import { dirname, join, relative, resolve, sep } from "node:path";

const ROOT = dirname(dirname(import.meta.dirname));

/** The layers below the modules, lowest first. */
const GROUND = ["core", "config.ts", "schemas", "schemes", "infra", "local"];
/** Layers without I/O: their dependencies are passed as arguments. */
const PURE = new Set(["core", "schemas", "schemes"]);
/** The only files of the payment schemes that others may import. */
const SEAM = new Set(["server/schemes/index.ts", "server/schemes/scheme.ts"]);
/** The files of a module that may hold a connection; all others only decide. */
const WIRING = /(^|\/)(index|wiring|[\w-]*store|[\w-]*routes?|[\w-]*-plugin)\.ts$/;
const CONNECTIONS = /^(pg|undici|@prisma\/.*|node:(http|https|net|tls|dns)(\/.*)?)$|\/generated\//;
const HTTP = /^(fastify|@fastify\/.*|fastify-plugin)$/;

const app = readFileSync(join(ROOT, "server", "app.ts"), "utf8");
const folderOf = new Map(
  [...app.matchAll(/import (\w+) from "\.\/plugins\/([\w-]+)\/index\.ts"/g)].map(
    ([, name, folder]) => [name, folder],
  ),
);
const modules = (/const MODULES = \[([^\]]*)\]/.exec(app)?.[1] ?? "")
  .split(",")
  .map((name) => folderOf.get(name.trim()))
  .filter((folder) => folder !== undefined);
if (modules.length === 0) throw new Error("server/app.ts names no modules");
const rank = new Map([...GROUND, ...modules].map((room, index) => [room, index]));

/**
 * The module or layer of a server file; undefined for app.ts, main.ts and the scripts, which may import all of
 * them.
 */
function serverRoom(path) {
  const [top, second] = path.split("/").slice(1);
  if (top === "plugins") return second;
  // The error registry belongs to the core, but is above it in the folders so that all can import it.
  if (top === "errors.ts") return "core";
  return rank.has(top) ? top : undefined;
}

/** The payloads of this scheme are not all payments: a module of its own reads them, and custody signs them. */
const CHANNELS = new Map([
  ["server/schemes/batch-settlement/index.ts", ["channels", "reconciliation", "spending"]],
  [
    "server/schemes/batch-settlement/paying.ts",
    ["custody", "channels", "x402-client", "reconciliation"],
  ],
]);

/** What the server and the web app share: pure, and not published. */
const SHARED = "packages/rules/src/";
/** The one place that converts money. */
const MONEY = "packages/paywall/src/money.ts";

/** A published package must not import from the rest of the repository, nor from another package. */
function installableFault(from, to) {
  const [, own] = from.split("/");
  if (from.startsWith(SHARED) && to === MONEY) return undefined;
  return to.startsWith(`packages/${own}/`)
    ? undefined
    : "A package takes nothing from outside its own folder: others install it without the rest.";
}

function serverFault(from, to) {
  if (to.startsWith("packages/"))
    return to.startsWith("packages/paywall/src/") || to.startsWith(SHARED)
      ? undefined
      : "Of the packages the server takes only the sources of the paywall and of the rules.";
  const room = serverRoom(from);
  const other = serverRoom(to);
  const isOwnScheme = CHANNELS.get(to)?.includes(room) === true;
  if (other === "schemes" && room !== "schemes" && !SEAM.has(to) && !isOwnScheme)
    return "A scheme is known to server/schemes/index.ts alone; ask its interface.";
  if (to.startsWith("web/")) return "The server knows nothing of the web app.";
  if (from.startsWith("server/plugins/") && !rank.has(room))
    return `server/plugins/${room} is not among the modules of server/app.ts.`;
  if (room === undefined || other === undefined || room === other) return undefined;
  return rank.get(other) > rank.get(room)
    ? `${room} stands before ${other} (the order is that of server/app.ts): it cannot import from it.`
    : undefined;
}

/** The layers of the web app, lowest first. Features must not import each other: what several need is in shared/. */
const WEB_LAYERS = ["lib", "components", "shared", "features", "app"];

function webFault(from, to, isType) {
  if (to.startsWith("server/"))
    return to.startsWith("server/schemas/") && isType
      ? undefined
      : "The web app takes the types of server/schemas, and no code of the server.";
  if (to.startsWith("packages/"))
    return to.startsWith(SHARED) || to === MONEY
      ? undefined
      : "Of the packages the web app takes only the source of the rules and the money conversion.";
  const [layer, feature] = from.split("/").slice(2);
  const [otherLayer, otherFeature] = to.split("/").slice(2);
  // The entry may import everything; styles/ contains no code.
  if (layer === "main.tsx" || otherLayer === "styles") return undefined;
  if (!WEB_LAYERS.includes(layer)) return `web/src/${layer} is not a layer of the web app.`;
  if (WEB_LAYERS.indexOf(otherLayer) > WEB_LAYERS.indexOf(layer))
    return `${layer} stands below ${otherLayer}: it cannot import from it.`;
  return layer === "features" && otherLayer === "features" && feature !== otherFeature
    ? `Feature ${feature} does not know feature ${otherFeature}; a screen in app/ puts them together.`
    : undefined;
}

/** Checks imports of packages, and of files that are restricted by path. */
function packageFault(from, source) {
  if (from.startsWith(SHARED))
    return source.startsWith(".") ? undefined : "The rules run in the browser too: no packages.";
  if (!from.startsWith("server/")) return undefined;
  const room = serverRoom(from);
  const isPure = PURE.has(room);
  if (
    CONNECTIONS.test(source) &&
    (isPure || (from.startsWith("server/plugins/") && !WIRING.test(from)))
  )
    return "This file decides; what it needs from outside comes as an argument.";
  if (HTTP.test(source) && isPure) return "This room knows nothing of HTTP.";
  return undefined;
}

const moduleOrder = {
  meta: { type: "problem" },
  create(context) {
    const from = relative(ROOT, context.filename).split(sep).join("/");
    if (!/^(server|packages|web\/src)\//.test(from)) return {};
    const checkImport = (node) => {
      const source = node.source?.value;
      if (typeof source !== "string") return;
      const isType = node.importKind === "type" || node.exportKind === "type";
      let fault = isType ? undefined : packageFault(from, source);
      if (source.startsWith(".")) {
        const to = relative(ROOT, resolve(dirname(context.filename), source))
          .split(sep)
          .join("/");
        if (from.startsWith("packages/")) fault ??= installableFault(from, to);
        else fault ??= from.startsWith("web/") ? webFault(from, to, isType) : serverFault(from, to);
      }
      if (fault !== undefined) context.report({ node, message: fault });
    };
    return {
      ImportDeclaration: checkImport,
      ExportNamedDeclaration: checkImport,
      ExportAllDeclaration: checkImport,
    };
  },
};

const registry = readFileSync(join(ROOT, "server", "schemes", "index.ts"), "utf8");
const listedSchemes = /export const SCHEMES[^=]*= \[([^\]]*)\]/.exec(registry)?.[1] ?? "";
/** `exact-permit2` counts as a name, as do `exact` and `permit2`. */
const SCHEME_NAMES = new Set(
  [...registry.matchAll(/import \{ (\w+) \} from "\.\/([\w-]+)\/index\.ts"/g)]
    .filter(([, name]) => listedSchemes.split(",").some((listed) => listed.trim() === name))
    .flatMap(([, , folder]) => [folder, ...folder.split("-")]),
);
if (SCHEME_NAMES.size === 0) throw new Error("server/schemes/index.ts lists no schemes");
/**
 * The files that may name schemes: the schemes themselves, their stored form, a package that is installed without
 * the rest, and the typed data that the web app signs itself.
 */
const KNOWS_SCHEMES =
  /^(server\/schemes\/|server\/core\/authorization\.ts$|packages\/paywall\/src\/scheme[\w-]*\.ts$|web\/src\/lib\/wallet\/typed-data\.ts$)/;
const SCHEME_MEMBER = /^(scheme|transferMethod|assetTransferMethod)$/;

const namesScheme = (node) => {
  const name = node.type === "ChainExpression" ? node.expression : node;
  return (
    name.type === "MemberExpression" &&
    SCHEME_MEMBER.test(name.computed ? name.property.value : name.property.name)
  );
};
const isText = (node) => node?.type === "Literal" && typeof node.value === "string";

/**
 * Differences between schemes belong into the scheme: every comparison of names would have to be found again for a
 * new scheme.
 */
const schemes = {
  meta: { type: "problem" },
  create(context) {
    const from = relative(ROOT, context.filename).split(sep).join("/");
    if (!/^(server|packages|web\/src)\//.test(from) || KNOWS_SCHEMES.test(from)) return {};
    const report = (node) => {
      context.report({
        node,
        message: "Payment schemes are known by name in server/schemes alone: ask the scheme.",
      });
    };
    return {
      Literal(node) {
        if (SCHEME_NAMES.has(node.value)) report(node);
      },
      BinaryExpression(node) {
        const { left, right, operator } = node;
        if (!/^[!=]==?$/.test(operator)) return;
        const isCompared =
          (namesScheme(left) && isText(right)) || (namesScheme(right) && isText(left));
        // A registered name is already reported by itself.
        if (isCompared && !SCHEME_NAMES.has(left.value) && !SCHEME_NAMES.has(right.value))
          report(node);
      },
      SwitchStatement(node) {
        if (namesScheme(node.discriminant)) report(node);
      },
    };
  },
};

/** Functions whose first argument is the key itself. */
const BY_KEY = /^((get|set)Query(Data|State|Defaults)|pagedQuery)$/;

/** A key from the table, or the `queryKey` of an options object. */
const isNamed = (node) =>
  (node?.type === "MemberExpression" && node.property.name === "queryKey") ||
  (node?.type === "CallExpression" ? node.callee : node)?.object?.name === "keys";

/** A query with a hand-written key would be missed when its data is invalidated. */
const queryKeys = {
  meta: { type: "problem" },
  create(context) {
    const from = relative(ROOT, context.filename).split(sep).join("/");
    // The second file passes on the key that its caller names.
    const isTable = /^web\/src\/lib\/(query-keys|pages)\.ts$/.test(from);
    if (!from.startsWith("web/src/") || isTable) return {};
    const report = (node) => {
      context.report({ node, message: "Queries are named in web/src/lib/query-keys.ts." });
    };
    return {
      Property({ parent, key, value }) {
        if (parent.type === "ObjectExpression" && key.name === "queryKey" && !isNamed(value))
          report(value);
      },
      CallExpression({ callee, arguments: [first] }) {
        if (BY_KEY.test(callee.property?.name ?? callee.name) && !isNamed(first)) report(first);
      },
      MemberExpression(node) {
        const { object } = node;
        if (node.computed && (object.name ?? object.property?.name) === "queryKey") report(node);
      },
    };
  },
};

export default {
  meta: { name: "purser" },
  rules: { "module-order": moduleOrder, schemes, "query-keys": queryKeys },
};
