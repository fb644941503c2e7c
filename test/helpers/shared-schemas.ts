// Apps of one process share their compiled schemas: each would compile the same ones again, a quarter of its CPU time.
import { lazySchemas, type SchemaCompilers } from "../../server/infra/lazy-schemas.ts";

type Build = (schemas: unknown, options: unknown) => (route: { schema: object }) => unknown;

export const sharedSchemas = {
  buildValidator: shared(lazySchemas.buildValidator as unknown as Build),
  buildSerializer: shared(lazySchemas.buildSerializer as unknown as Build),
} as unknown as SchemaCompilers;

function shared(build: Build): Build {
  const known = new WeakMap<object, unknown>();
  return (schemas, options) => {
    const compile = build(schemas, options);
    return (route) => {
      const compiled = known.get(route.schema) ?? compile(route);
      known.set(route.schema, compiled);
      return compiled;
    };
  };
}
