import { NativeSelect, Textarea, TextInput } from "@mantine/core";
import { useInputState } from "@mantine/hooks";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { useSearchParams } from "react-router";
import { CopyButton } from "../../components/CopyButton.tsx";
import { RequestForm } from "../../components/RequestForm.tsx";
import { api } from "../../lib/api.ts";
import type { Validation } from "../../lib/wire.ts";

interface ValidateFormProps {
  onChecked: (checked: Validation | undefined) => void;
}

/** A link may fill it in, but only a press sends something: a link must not make this service request a URL. */
export function ValidateForm({ onChecked }: ValidateFormProps): ReactNode {
  const [parameters] = useSearchParams();
  const [url, setUrl] = useInputState(parameters.get("url") ?? "");
  const [method, setMethod] = useState(parameters.get("method") === "POST" ? "POST" : "GET");
  const [body, setBody] = useInputState("");
  const isPost = method === "POST";
  const check = useMutation({
    mutationFn: () =>
      api.post<Validation>("/api/x402/validate", {
        url: url.trim(),
        method,
        ...(isPost && body !== "" && { body }),
      }),
    onMutate: () => {
      onChecked(undefined);
    },
    onSuccess: onChecked,
  });
  const link = new URL("/validate", globalThis.location.href);
  link.searchParams.set("url", url.trim());
  if (isPost) link.searchParams.set("method", method);
  return (
    <RequestForm
      mutation={check}
      failed="The URL could not be checked"
      confirm="Check it"
      pending="Checking…"
      disabled={url.trim() === ""}
      more={url.trim() !== "" && <CopyButton value={link.href} what="link" text="Copy link" />}
    >
      <TextInput
        label="URL of the paid API"
        placeholder="https://api.example.com/v1/report"
        required
        type="url"
        maxLength={2048}
        value={url}
        onChange={setUrl}
      />
      <NativeSelect
        label="Method"
        value={method}
        data={["GET", "POST"]}
        onChange={(event) => {
          setMethod(event.currentTarget.value);
        }}
      />
      {isPost && (
        <Textarea
          label="Body"
          description="Sent only where a POST without a body is refused."
          placeholder='{"city":"Lisbon"}'
          autosize
          minRows={2}
          maxRows={8}
          maxLength={4096}
          value={body}
          onChange={setBody}
        />
      )}
    </RequestForm>
  );
}
