/** The documentation at /docs/: the site that `npm run docs` builds from the folder docs. */
import { createHash } from "node:crypto";
import { existsSync, statSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import fastifyStatic from "@fastify/static";
import fp from "fastify-plugin";
import type { FastifyReply } from "fastify";
import { ApiError } from "../../errors.ts";
import { ROOT } from "../../infra/root.ts";

const SITE = fileURLToPath(new URL("docs/.vitepress/dist/", ROOT));
const ONE_YEAR_SECONDS = 31_536_000;

/** `npm start` builds the site after the service listens, so it may appear later. */
const NOT_BUILT = `<!doctype html><html lang="en"><meta charset="utf-8"><title>Purser documentation</title>
<meta http-equiv="refresh" content="5">
<h1>Documentation</h1><p>The pages are not built yet. <code>npm start</code> builds them in its first minute; <code>npm run docs</code> does it now.</p>
<p>Meanwhile: <a href="/openapi.json">the OpenAPI document</a>, <a href="/skill.md">the page for agents</a>.</p></html>`;

/** URLs of earlier versions. */
const MOVED = ["/docs/json", "/docs/yaml"];

export default fp(
  async (app) => {
    // Files are looked up for each request: the site may be built, and rebuilt, while the service runs.
    const send = async (reply: FastifyReply, path: string): Promise<FastifyReply> => {
      // Only instead of a page: a missing script is an error.
      if (!existsSync(join(SITE, "index.html")) && !/\.\w+$/.test(path))
        return reply
          .type("text/html; charset=utf-8")
          .header("cache-control", "no-store")
          .send(NOT_BUILT);
      const file = fileOf(path);
      if (file === undefined) throw new ApiError("not_found");
      const isHashed = file.startsWith("assets/");
      reply.header(
        "cache-control",
        isHashed ? `public, max-age=${ONE_YEAR_SECONDS}, immutable` : "no-cache",
      );
      if (file.endsWith(".html")) await allowInlineScripts(reply, join(SITE, file));
      return reply.sendFile(file);
    };
    await app.register(async (scope) => {
      await scope.register(fastifyStatic, {
        root: SITE,
        // The site may be built later, which is no fault.
        suppressWarning: true,
        serve: false,
        cacheControl: false,
        preCompressed: true,
      });
      const open = { config: { auth: "public" }, schema: { hide: true } } as const;
      // The router treats both URLs as one; the site's own scripts work only under the second.
      scope.get("/docs", open, (request, reply) =>
        request.url.split("?", 1)[0] === "/docs" ? reply.redirect("/docs/", 308) : send(reply, ""),
      );
      for (const url of MOVED)
        scope.get(url, open, (_request, reply) => reply.redirect("/openapi.json", 308));
      scope.get<{ Params: { "*": string } }>("/docs/*", open, (request, reply) =>
        send(reply, request.params["*"]),
      );
    });
  },
  { name: "docs", dependencies: ["http"] },
);

/** A page's URL has no extension. Undefined for a path that is not a file of the site. */
function fileOf(path: string): string | undefined {
  const isOfSite = (file: string): boolean => {
    const place = join(SITE, file);
    return place.startsWith(SITE) && statSync(place, { throwIfNoEntry: false })?.isFile() === true;
  };
  if (path.includes("\0")) return undefined;
  return [path, `${path}.html`, join(path, "index.html")].find(isOfSite);
}

/** Allows only the inline scripts of this page, each by its hash. */
async function allowInlineScripts(reply: FastifyReply, place: string): Promise<void> {
  const page = await readFile(place, "utf8");
  const hashes = [...page.matchAll(/<script[^>]*>([^<]+)<\/script>/g)].map(
    ([, text = ""]) => `'sha256-${createHash("sha256").update(text).digest("base64")}'`,
  );
  const policy = String(reply.getHeader("content-security-policy") ?? "");
  reply.header(
    "content-security-policy",
    policy.replace("script-src 'self'", ["script-src 'self'", ...hashes].join(" ")),
  );
}
