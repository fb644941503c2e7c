import { Button, NativeSelect, TextInput } from "@mantine/core";
import { useInputState } from "@mantine/hooks";
import { useMutation } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "react-router";
import { RequestForm } from "../../components/RequestForm.tsx";
import type { ProbeResult } from "../../lib/wire.ts";
import { probeListing } from "./api.ts";

const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"];

interface ProbeFormProps {
  found: ProbeResult | undefined;
  onFound: (found: ProbeResult | undefined) => void;
  onCancel: () => void;
}

/** Requests the API once to read its price and payee before it is listed. */
export function ProbeForm({ found, onFound, onCancel }: ProbeFormProps): ReactNode {
  const [url, setUrl] = useInputState("");
  const [method, setMethod] = useInputState("GET");
  const probe = useMutation({
    mutationFn: () => probeListing(url.trim(), method),
    onSuccess: onFound,
  });
  const forget = (): void => {
    probe.reset();
    onFound(undefined);
  };
  return (
    <RequestForm
      mutation={probe}
      failed="This URL does not return payment terms that Purser supports"
      confirm="Check the URL"
      pending="Checking the API…"
      disabled={url.trim() === ""}
      isDone={found !== undefined}
      onCancel={onCancel}
      more={
        probe.error !== null && (
          <Button component={Link} to={`/validate?${new URLSearchParams({ url: url.trim() })}`}>
            Why?
          </Button>
        )
      }
    >
      <TextInput
        label="URL of the paid API"
        placeholder="https://api.example.com/v1/report"
        required
        type="url"
        data-autofocus
        value={url}
        onChange={(event) => {
          setUrl(event);
          forget();
        }}
      />
      <NativeSelect
        label="Method"
        value={method}
        data={METHODS}
        onChange={(event) => {
          setMethod(event);
          forget();
        }}
      />
    </RequestForm>
  );
}
