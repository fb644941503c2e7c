import { TextInput } from "@mantine/core";
import { useInputState } from "@mantine/hooks";
import { useMutation } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Fields, Section } from "../../components/Layout.tsx";
import { RequestForm } from "../../components/RequestForm.tsx";
import { invalidate } from "../../lib/query-keys.ts";
import { useNetwork } from "../../shared/info.ts";
import { useOwner } from "../../shared/session/session-context.ts";
import { makeTeam } from "./api.ts";
import { useActFor } from "./use-act-for.ts";

/** Makes a team with this account as its only admin, and acts for it. */
export function MakeTeam(): ReactNode {
  const { address: account } = useOwner();
  const network = useNetwork();
  const switchTo = useActFor();
  const [name, setName] = useInputState("");
  const [memberName, setMemberName] = useInputState("");
  const make = useMutation({
    mutationFn: async () => {
      const names = { name: name.trim(), memberName: memberName.trim() };
      const { owner } = await makeTeam(names, { account, network });
      await switchTo.mutateAsync({ owner, to: "/team" });
    },
    onSettled: invalidate.session,
  });
  return (
    <Section
      title="Make a team"
      hint="An account of several people, so that no single key can raise limits or withdraw. You sign its first list of members, with yourself as the only admin, and add the others after that. Your own agents stay with you."
    >
      <RequestForm
        mutation={make}
        failed="The team was not made"
        confirm="Sign and make the team"
        pending="Waiting for your signature…"
        disabled={name.trim() === "" || memberName.trim() === ""}
      >
        <Fields>
          <TextInput
            label="Name of the team"
            placeholder="Acme Ltd"
            maxLength={60}
            value={name}
            onChange={setName}
          />
          <TextInput
            label="Your name in it"
            placeholder="Ada"
            maxLength={60}
            value={memberName}
            onChange={setMemberName}
          />
        </Fields>
      </RequestForm>
    </Section>
  );
}
