/**
 * Compiles route schemas lazily. Fastify compiles all of them at start, which takes 0.4 s, mostly for routes that are
 * not called soon. Here each is compiled at its first request, by the compilers that Fastify would use.
 */
import AjvCompiler from "@fastify/ajv-compiler";
import { SerializerSelector } from "@fastify/fast-json-stringify-compiler";
import type { FastifyServerOptions } from "fastify";

type Factory = NonNullable<
  NonNullable<FastifyServerOptions["schemaController"]>["compilersFactory"]
>;
interface Validate {
  (data: unknown): unknown;
  errors?: unknown;
}
type Serialize = (data: unknown) => string;
type Build<Compiled> = (schemas: unknown, options: unknown) => (route: unknown) => Compiled;

/**
 * `eager`: a schema that does not compile stops the boot. Tests use it, and the service runs what they have checked.
 */
export function schemaCompilers({ eager }: { eager: boolean }): Factory {
  const validators = AjvCompiler() as unknown as Build<Validate>;
  const serializers = SerializerSelector() as unknown as Build<Serialize>;
  const factory = {
    buildValidator: eager ? validators : later(validators, lazyValidator),
    buildSerializer: eager ? serializers : later(serializers, lazySerializer),
  };
  return factory as unknown as Factory;
}

const later =
  <Compiled>(
    build: Build<Compiled>,
    lazy: (compile: () => Compiled) => Compiled,
  ): Build<Compiled> =>
  (schemas, options) => {
    const compile = build(schemas, options);
    return (route) => lazy(() => compile(route));
  };

function lazyValidator(compile: () => Validate): Validate {
  let compiled: Validate | undefined;
  const validate: Validate = (data) => {
    compiled ??= compile();
    const verdict = compiled(data);
    // Fastify reads the errors from the function right after it returned false.
    validate.errors = compiled.errors;
    return verdict;
  };
  return validate;
}

function lazySerializer(compile: () => Serialize): Serialize {
  let compiled: Serialize | undefined;
  return (data) => (compiled ??= compile())(data);
}
