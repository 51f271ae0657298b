from podsrl.cli.main import main

main()
