/**
 * Compiles each route's schemas at its first request, by Fastify's own compilers. Compiling all of them would make a start
 * much longer. Fastify 5 has no option for this.
 */
import AjvCompiler from "@fastify/ajv-compiler";
import { SerializerSelector } from "@fastify/fast-json-stringify-compiler";
import type { FastifyServerOptions } from "fastify";

export type SchemaCompilers = NonNullable<
  NonNullable<FastifyServerOptions["schemaController"]>["compilersFactory"]
>;
interface Compiled {
  (data: unknown): unknown;
  /** Only a validator's: why the data is invalid. */
  errors?: unknown;
}
type Build = (schemas: unknown, options: unknown) => (route: unknown) => Compiled;

export const lazySchemas = {
  buildValidator: lazily(AjvCompiler() as unknown as Build),
  buildSerializer: lazily(SerializerSelector() as unknown as Build),
} as unknown as SchemaCompilers;

function lazily(build: Build): Build {
  return (schemas, options) => {
    const compile = build(schemas, options);
    return (route) => {
      let compiled: Compiled | undefined;
      const run: Compiled = (data) => {
        compiled ??= compile(route);
        const result = compiled(data);
        // Fastify reads a validator's errors from the function right after it returned false.
        run.errors = compiled.errors;
        return result;
      };
      return run;
    };
  };
}
